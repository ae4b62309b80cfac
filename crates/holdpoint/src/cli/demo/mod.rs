//! `holdpoint demo`: a server to try out, with an agent that follows a script and a run that already waits for
//! approval.

mod outcome;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use engine::Engine;
use engine::posting::Message;
use engine::store::{SuspensionView, Tenant};
use serde_json::json;

use super::config::listen_address;
use super::open_token::OpenToken;
use super::output::{print, print_json};
use super::problem::{Exit, Problem};
use super::scratch::Scratch;
use super::serve::{LogFormat, LogLevel, RunningServer, ServeOptions, announce, block_on_runtime, init_log};
use super::{CommandResult, GlobalArgs};

const FILES: [(&str, &str); 2] =
    [("holdpoint.toml", include_str!("holdpoint.toml")), ("demo.json", include_str!("demo.json"))];
const AGENT: &str = "clerk";
const MESSAGE: &str = "Write the minutes of today's meeting.";

/// Serve an example, with a run that waits for your approval
///
/// An agent that follows a script has called add, which needs no approval, and wants to call write_file, which does.
/// Prints commands to try: list what is held, approve it, look at the run. Reports in the same window when the call is
/// approved or rejected. Needs no key and no configuration. With --folder everything stays, and the same command continues
/// with it.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Where the configuration, the script and the store go; a folder that is removed at the end, if none
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Where to listen; port 0 picks one
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
}

impl Demo {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        let scratch = if self.folder.is_some() { None } else { Some(Scratch::new("demo")?) };
        let folder = self.folder.as_deref().or(scratch.as_ref().map(Scratch::path)).unwrap_or(Path::new("."));
        set_up(folder)?;
        let store = global.store_is_explicit.then(|| global.store.clone());
        let options = ServeOptions { config: folder.join("holdpoint.toml"), listen: self.listen, store };
        let configuration = options.load()?;
        let log = init_log(LogFormat::Text, LogLevel::Warn)?;
        let outcome = block_on_runtime(async {
            let running = RunningServer::start(options, configuration, log.clone()).await?;
            let held = find_or_create_approval(running.engine()).await?;
            let url = format!("http://{}", running.address());
            let token = running.open_token();
            announce(&log, LogFormat::Text, running.address(), token);
            let commands = commands(&url, &held, token);
            let approve = approve_command(&url, &held, token);
            if global.json {
                print_json(&json!({
                    "url": url,
                    "folder": folder.display().to_string(),
                    "run_id": held.run.as_str(),
                    "approval_id": held.id.as_str(),
                    "commands": commands,
                    "approve_command": approve,
                }))?;
            } else {
                print(&instructions(folder, &commands, &approve))?;
                // A line per request would hide this one.
                let events = running.engine().subscribe(&held.tenant, &held.run, 0);
                tokio::spawn(outcome::report(events, held, folder.display().to_string()));
            }
            running.run_until_stopped().await
        });
        log.flush();
        outcome
    }
}

/// Leaves existing files unchanged.
fn set_up(folder: &Path) -> Result<(), Problem> {
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        for (name, text) in FILES {
            let path = folder.join(name);
            if !path.exists() {
                std::fs::write(path, text)?;
            }
        }
        Ok(())
    };
    write().map_err(|why| {
        Problem::new(
            "NO_FOLDER",
            format!("{} cannot be written to: {why}", folder.display()),
            "Name a folder that can be written to with --folder.",
            Exit::Other,
        )
    })
}

/// The approval that is still pending from the last start, or a new one.
async fn find_or_create_approval(engine: &Engine) -> Result<SuspensionView, Problem> {
    let tenant = Tenant::default();
    let refused = |why: String| {
        let next =
            "Give the agent `clerk` of the demo's holdpoint.toml its tools back, or name an empty folder.";
        Problem::new("DEMO_CHANGED", why, next, Exit::Other)
    };
    let mut held = engine.pending(&tenant).await.map_err(Problem::from)?;
    if held.is_empty() {
        engine.run(Message::to(AGENT, MESSAGE)).await.map_err(|why| refused(why.to_string()))?;
        held = engine.pending(&tenant).await.map_err(Problem::from)?;
    }
    held.into_iter()
        .next()
        .ok_or_else(|| refused("the run of the demo does not wait for an approval".to_owned()))
}

/// Commands to list the held calls, to approve this one, and to look at its run.
fn commands(url: &str, held: &SuspensionView, token: Option<&OpenToken>) -> [String; 3] {
    let header = token.map(|token| format!(" -H 'authorization: Bearer {}'", token.text));
    [
        format!("curl {url}/v1/approvals"),
        format!("curl -X POST {url}/v1/approvals/{}/approve{}", held.id, header.unwrap_or_default()),
        format!("curl {url}/v1/runs/{}", held.run),
    ]
}

/// The command that approves the call with the program that serves the demo.
fn approve_command(url: &str, held: &SuspensionView, token: Option<&OpenToken>) -> String {
    // A saved token is found without the variable.
    let unsaved = token.filter(|token| token.saved_to.is_err());
    let variable = unsaved.map(|token| format!("HOLDPOINT_TOKEN={} ", token.text)).unwrap_or_default();
    format!("{variable}{} approvals approve {} --url {url}", program(), held.id)
}

/// How a shell in the current folder starts this program.
fn program() -> String {
    let Ok(path) = std::env::current_exe() else { return "holdpoint".to_owned() };
    let here = std::env::current_dir().unwrap_or_default();
    let text = match path.strip_prefix(&here) {
        // A name without a slash would be looked up on PATH.
        Ok(inside) if inside.components().count() > 1 => inside.display().to_string(),
        Ok(_) | Err(_) => path.display().to_string(),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn instructions(folder: &Path, [list, approve, show]: &[String; 3], approve_command: &str) -> String {
    format!(
        "The agent wants to write a file, and the call waits for your approval. In a second terminal, in this folder:\n\
         \n\
         {list}\n\
         {approve_command}\n\
         {show}\n\
         \n\
         The second command shows the arguments and asks you. The same without a question:\n\
         \n\
         {approve}\n\
         \n\
         This window reports your decision. Files are in {}. Ctrl-C stops the server; kill -9 loses nothing that it has confirmed.\n",
        folder.display()
    )
}
