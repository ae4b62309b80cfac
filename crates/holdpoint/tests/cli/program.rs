//! The program as a process, and a folder with a store in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdpoint::prelude::*;
use holdpoint::store::Store;
use serde_json::Value;

/// Where the servers of these tests store tokens and the commands find them.
pub(crate) fn state_home() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("state")
}

/// A folder that is removed after the test. The program is started in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("holdpoint-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        Self(folder)
    }

    /// A folder with a store of the default name: two runs have ended and one is held.
    pub(crate) async fn with_a_store() -> Self {
        let folder = Self::new();
        folder.serve().await.close(Duration::from_secs(5)).await;
        folder
    }

    /// The same, and the engine keeps running.
    pub(crate) async fn serve(&self) -> Engine {
        let store = SqliteStore::open(self.store()).expect("the store opens");
        Self::serve_on(store).await
    }

    /// The same in any store.
    pub(crate) async fn serve_on(store: impl Store) -> Engine {
        let transfer =
            FunctionTool::new(ToolDefinition::new("transfer", "Moves money"), |_: ToolRequest| async {
                json!("sent")
            });
        let held = Reply::call("call_1", "transfer", json!({"to": "bob", "euros": 40}));
        let clerk = Agent::new("clerk", ScriptedModel::replying([held])).tool(transfer);
        let porter = Agent::new("porter", ScriptedModel::replying([Reply::text("Good morning.")]));
        let engine = Engine::on(store).agent(clerk).agent(porter).start().await.expect("the engine starts");
        for agent in ["porter", "porter", "clerk"] {
            engine.run(Message::to(agent, "Hello")).await.expect("the run ends or is held");
        }
        engine
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("holdpoint.db")
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("the folder can be read");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("the entry can be read").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        CommandOutput::capture(
            command.current_dir(&self.0).args(arguments).env("XDG_STATE_HOME", state_home()),
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The output of a process, and its exit code.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    pub(crate) fn capture(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().expect("the program starts");
        let text = |bytes| String::from_utf8(bytes).expect("the program prints text");
        Self { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// The error on the last line, for commands with `--json`.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let last = self.err.lines().last().unwrap_or_default();
        let mut value: Value = serde_json::from_str(last).unwrap_or_else(|why| panic!("{why}: {self:?}"));
        value["error"].take()
    }
}
