//! `holdpoint demo`: a server to try out, with an agent that follows a script and a run that already waits for
//! approval.

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
/// An agent that follows a script has added two numbers, which needs nobody's leave, and wants to write a file, which does.
/// Prints three commands to try: list what is held, approve it, look at the run. Needs no key and no configuration. With
/// --folder everything stays, and the same command goes on with it.
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
        let log = init_log(LogFormat::Text, LogLevel::Info)?;
        let outcome = block_on_runtime(async {
            let running = RunningServer::start(options, configuration, log.clone()).await?;
            let held = find_or_create_approval(running.engine()).await?;
            let url = format!("http://{}", running.address());
            let token = running.open_token();
            announce(&log, LogFormat::Text, running.address(), token);
            let commands = commands(&url, &held, token);
            if global.json {
                print_json(&json!({
                    "url": url,
                    "folder": folder.display().to_string(),
                    "run_id": held.run.as_str(),
                    "approval_id": held.id.as_str(),
                    "commands": commands,
                }))?;
            } else {
                print(&instructions(folder, &commands))?;
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
    held.into_iter().next().ok_or_else(|| refused("the run of the demo waits for nobody".to_owned()))
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

fn instructions(folder: &Path, [list, approve, show]: &[String; 3]) -> String {
    format!(
        "A run wants to write a file, and waits for somebody. In another terminal:\n\
         \n\
         {list}\n\
         {approve}\n\
         {show}\n\
         \n\
         Its files are in {}. Ctrl-C stops the server; kill -9 loses nothing that it has said.\n",
        folder.display()
    )
}
