UPDATE leave SET taken_back = 1
WHERE thread = (SELECT row FROM threads WHERE tenant = ?1 AND id = ?2) AND taken_back = 0
