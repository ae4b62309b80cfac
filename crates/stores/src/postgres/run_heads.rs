//! Heads of runs, read from a database.

use engine::store::{StoreError, Tenant};

use super::connection::Connections;
use super::errors::PostgresError;
use super::nul_escape::{escape, unescape};
use super::upkeep::Upkeep;
use crate::columns::{digest, to_i64, to_u64};
use crate::run_heads::{PAGE, RunAtHead, RunHead, RunHeadPage, RunHeadSource, compare};

impl RunHeadSource for Upkeep {
    async fn run_heads(&self, tenant: Option<&Tenant>, after: i64) -> Result<RunHeadPage, StoreError> {
        heads_after(&self.connections, tenant, after).await.map_err(|PostgresError(refused)| refused)
    }

    async fn compare_runs(&self, heads: &[RunHead]) -> Result<Vec<RunAtHead>, StoreError> {
        let mut compared = Vec::with_capacity(heads.len());
        for head in heads {
            let run = compare_run(&self.connections, head).await;
            compared.push(run.map_err(|PostgresError(refused)| refused)?);
        }
        Ok(compared)
    }
}

async fn heads_after(
    connections: &Connections,
    tenant: Option<&Tenant>,
    after: i64,
) -> Result<RunHeadPage, PostgresError> {
    let sql = "SELECT r.run, r.tenant, t.id, r.id, r.seq, r.chain_head
        FROM runs r JOIN threads t ON t.thread = r.thread
        WHERE r.run > $1 AND ($2::text IS NULL OR r.tenant = $2) ORDER BY r.run LIMIT $3";
    let tenant = tenant.map(|tenant| escape(tenant.as_str()));
    let rows = connections.read(sql, &[&after, &tenant, &to_i64(PAGE as u64)]).await?;
    let mut page = RunHeadPage::default();
    for row in rows {
        page.last = Some(row.try_get(0)?);
        let Some(hash) = row.try_get::<_, Option<Vec<u8>>>(5)? else { continue };
        page.heads.push(RunHead {
            tenant: Tenant::from(unescape(row.try_get(1)?).as_str()),
            thread: unescape(row.try_get(2)?),
            run: unescape(row.try_get(3)?),
            seq: to_u64(row.try_get(4)?),
            hash: digest(&hash)?,
        });
    }
    Ok(page)
}

async fn compare_run(connections: &Connections, head: &RunHead) -> Result<RunAtHead, PostgresError> {
    let sql = "SELECT r.seq, c.run IS NOT NULL, c.hash
        FROM runs r LEFT JOIN commits c ON c.run = r.run AND c.last_seq = $3
        WHERE r.tenant = $1 AND r.id = $2";
    let (tenant, run) = (escape(head.tenant.as_str()), escape(&head.run));
    let rows = connections.read(sql, &[&tenant, &run, &to_i64(head.seq)]).await?;
    let Some(row) = rows.first() else { return Ok(RunAtHead::NotFound) };
    let is_there: bool = row.try_get(1)?;
    let hash = if is_there { Some(row.try_get(2)?) } else { None };
    Ok(compare(head, to_u64(row.try_get(0)?), hash))
}
