//! Ways to tamper with the logs of the sample data. An attacker also changes the rows beside the log, so that only the
//! hash chain gives it away, unless that is impossible.

use machine::id::Digest;

/// A commit of the sample run `ended`, as it is stored.
pub(crate) struct LoggedCommit {
    pub(crate) first_seq: i64,
    pub(crate) last_seq: i64,
    pub(crate) body: String,
}

/// Statements in which `{ended}` and `{waits}` are the row numbers of two sample runs. Each one has to change a row.
pub(crate) struct Tampering {
    pub(crate) sql: Vec<String>,
    /// The run that the doctor names.
    pub(crate) run: &'static str,
    /// The place in its log.
    pub(crate) says: String,
}

fn commit_with<'c>(log: &'c [LoggedCommit], text: &str) -> &'c LoggedCommit {
    log.iter().find(|commit| commit.body.contains(text)).unwrap_or_else(|| panic!("no commit has {text}"))
}

fn set_body(commit: &LoggedCommit, body: &str) -> String {
    let body = body.replace('\'', "''");
    format!("UPDATE commits SET body = '{body}' WHERE run = {{ended}} AND first_seq = {}", commit.first_seq)
}

/// Exchanges two lines of a commit, and gives each the number of the other.
fn swapped(commit: &LoggedCommit, one: &str, other: &str) -> String {
    let mut lines: Vec<String> = commit.body.lines().map(str::to_owned).collect();
    let place = |text: &str| lines.iter().position(|line| line.contains(text)).expect("the line is there");
    let (first, second) = (place(one), place(other));
    lines.swap(first, second);
    let number = |index: usize| format!("\"seq\":{},", commit.first_seq + i64::try_from(index).unwrap());
    lines[first] = lines[first].replace(&number(second), &number(first));
    lines[second] = lines[second].replace(&number(first), &number(second));
    lines.join("\n")
}

fn broken(commit: &LoggedCommit) -> String {
    format!("the commit of events {} to {} does not match its hash", commit.first_seq, commit.last_seq)
}

pub(crate) fn tamperings(log: &[LoggedCommit]) -> Vec<Tampering> {
    let (created, last) = (&log[0], log.last().unwrap());
    let (asked, denied) = (commit_with(log, "tool.requested"), commit_with(log, "tool.denied"));
    let after_denied = log.iter().find(|commit| commit.first_seq == denied.last_seq + 1).unwrap();
    let arguments = |of: &str| format!("{{\"of\":\"{of}\"}}");
    let digest = |of: &str| Digest::sha256(arguments(of).as_bytes()).to_string();
    let other_arguments =
        asked.body.replace(&arguments("yes"), &arguments("all")).replace(&digest("yes"), &digest("all"));
    let ended = |sql: Vec<String>, says: String| Tampering { sql, run: "ended", says };
    vec![
        // Who decided.
        ended(
            vec![
                set_body(denied, &denied.body.replace("\"by\":\"ana\"", "\"by\":\"eve\"")),
                "UPDATE suspensions SET decided_by = 'eve' WHERE run = {ended} AND status = 'rejected'".into(),
            ],
            broken(denied),
        ),
        // What was asked for.
        ended(vec![set_body(asked, &other_arguments)], broken(asked)),
        // The order of events.
        ended(
            vec![set_body(asked, &swapped(asked, "\"tool.requested\",\"payload\":{\"call_id\":\"no\"", "\"tool.requested\",\"payload\":{\"call_id\":\"yes\""))],
            broken(asked),
        ),
        // A commit in the middle, the last one, and the first one are removed.
        ended(
            vec![format!("DELETE FROM commits WHERE run = {{ended}} AND first_seq = {}", denied.first_seq)],
            format!(
                "the commit of events {} to {} follows event {}",
                after_denied.first_seq, after_denied.last_seq, asked.last_seq
            ),
        ),
        ended(
            vec![format!("DELETE FROM commits WHERE run = {{ended}} AND first_seq = {}", last.first_seq)],
            format!("the log ends with event {}, and the run's row says {}", last.first_seq - 1, last.last_seq),
        ),
        ended(
            vec!["DELETE FROM commits WHERE run = {ended} AND first_seq = 1".into()],
            format!("the commit of events {} to {} follows event 0", asked.first_seq, asked.last_seq),
        ),
        // Two runs: the text of a commit, and whole logs.
        ended(
            vec![
                "UPDATE commits SET body = (SELECT c.body FROM commits c WHERE c.run = {waits} AND c.first_seq = 1) \
                 WHERE run = {ended} AND first_seq = 1"
                    .into(),
            ],
            broken(created),
        ),
        Tampering {
            sql: vec![
                "UPDATE commits SET run = -1 WHERE run = {ended}".into(),
                "UPDATE commits SET run = {ended} WHERE run = {waits}".into(),
                "UPDATE commits SET run = {waits} WHERE run = -1".into(),
            ],
            run: "waits",
            says: broken(created),
        },
        // The hashes themselves.
        ended(
            vec!["UPDATE runs SET chain_head = (SELECT o.chain_head FROM runs o WHERE o.id = 'later') WHERE id = 'ended'".into()],
            format!("the head in the run's row is not the hash of the commit that ends with event {}", last.last_seq),
        ),
        ended(
            vec![format!("UPDATE commits SET hash = NULL WHERE run = {{ended}} AND first_seq = {}", asked.first_seq)],
            format!("the commit of events {} to {} has no hash", asked.first_seq, asked.last_seq),
        ),
        ended(
            vec![
                "UPDATE commits SET hash = NULL WHERE run = {ended}".into(),
                "UPDATE runs SET chain_head = NULL, chain_from = NULL WHERE id = 'ended'".into(),
            ],
            "the run was created with a hash chain from event 1 on, and it has none".into(),
        ),
        ended(
            vec![
                format!("UPDATE commits SET hash = NULL WHERE run = {{ended}} AND last_seq < {}", last.first_seq),
                format!("UPDATE runs SET chain_from = {} WHERE id = 'ended'", last.first_seq),
            ],
            format!("the run was created with a hash chain from event 1 on, and it starts at event {}", last.first_seq),
        ),
    ]
}
