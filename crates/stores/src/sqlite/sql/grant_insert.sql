INSERT INTO grants (tenant, id, thread, tool, agent, definition, reasons, given_by, since)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
