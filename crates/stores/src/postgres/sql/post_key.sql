SELECT r.id, k.body FROM threads t JOIN post_keys k ON k.thread = t.thread JOIN runs r ON r.run = k.run
WHERE t.tenant = $1 AND t.id = $2 AND k.scope = $3
