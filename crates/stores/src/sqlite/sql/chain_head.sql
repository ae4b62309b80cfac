SELECT chain_from, chain_head FROM runs WHERE tenant = ?1 AND id = ?2
