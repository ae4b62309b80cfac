//! `[mcp.NAME]`: servers whose tools appear as `NAME.TOOL`. They are not implemented yet, but the tables are validated.

use std::collections::BTreeSet;

use super::table::{Entry, Table};
use super::tools::{ApprovalSettings, EFFECTS};

/// Returns the names of the servers.
pub(super) fn read(entry: Option<Entry<'_>>) -> BTreeSet<String> {
    let Some(table) = entry.and_then(|entry| entry.table("tables [mcp.NAME]")) else {
        return BTreeSet::new();
    };
    let mut names = BTreeSet::new();
    for (name, entry) in table.into_entries() {
        names.insert(name.to_owned());
        entry.location.fault("tools over MCP are not built yet; remove the table");
        if let Some(table) = entry.table("a table [mcp.NAME]") {
            read_server(table);
        }
    }
    names
}

fn read_server(mut table: Table<'_>) {
    let (command, url) = (table.take("command"), table.take("url"));
    match (&command, &url) {
        (None, None) => {
            table.location.missing("command").fault("it is missing; write the program to start, or a url");
        }
        (Some(_), Some(url)) => url.location.fault("command is also set; keep one of them"),
        (Some(command), None) => {
            command.nonempty("the program to start");
        }
        (None, Some(url)) => {
            url.http_url();
        }
    }
    let arguments = table.take("args").and_then(|entry| entry.items("a list of texts"));
    for argument in arguments.unwrap_or_default() {
        argument.text("a text");
    }
    if let Some(trust) = table.take("trust_annotations") {
        trust.boolean();
    }
    let tools = table.take("tools").and_then(|entry| entry.table("tables [mcp.NAME.tools.TOOL]"));
    for (_, entry) in tools.map(Table::into_entries).unwrap_or_default() {
        let Some(mut tool) = entry.table("a table [mcp.NAME.tools.TOOL]") else { continue };
        if let Some(effect) = tool.take("effect") {
            effect.choice(&EFFECTS);
        }
        ApprovalSettings::read(&mut tool);
        if let Some(timeout) = tool.take("timeout") {
            timeout.nonzero_duration();
        }
        tool.finish();
    }
    table.finish();
}
