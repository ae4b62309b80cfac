-- Answers that approve. Only an approving answer contains these characters outside a JSON string.
SELECT count(*) FROM inbox i CROSS JOIN suspensions s ON s.run = i.run AND s.answered_by = i.ticket
WHERE s.status = 'pending' AND s.kind = 'approval' AND instr(i.item, '"action":{"resume":') > 0
