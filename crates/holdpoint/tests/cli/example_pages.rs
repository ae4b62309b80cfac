//! The pages of `examples/` in a real browser. The server is killed with SIGKILL and started again under each page.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::RecvTimeoutError;

use crate::program::Folder;
use crate::server::{Lines, STUCK_AFTER, Server, lines, write};

/// The key of the examples.
const KEY: &str = "a-long-random-token";

/// A port that no other process has: below those that the system gives to connections, so that the server gets the same
/// one after its restart, and in a range of this process.
fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 1_000).expect("it is small") * 10;
    loop {
        let port = first + TAKEN.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && TcpListener::bind(("::1", port))
                .map_or_else(|error| error.kind() != std::io::ErrorKind::AddrInUse, |_| true)
        {
            return port;
        }
    }
}

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a script of `.ci` prints.
#[track_caller]
fn ci(script: &str, arguments: &[&str]) -> String {
    let printed = Command::new(tree().join(".ci").join(script)).args(arguments).output();
    let printed = printed.expect("the script can be run");
    assert!(printed.status.success(), "{script}: {}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8_lossy(&printed.stdout).trim().to_owned()
}

/// A process that is killed when the test ends.
struct Process {
    child: Child,
    out: Lines,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn spawn(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("the program starts");
        let out = lines(child.stdout.take().expect("it has a standard output"));
        Self { child, out }
    }

    /// None at the end of its output.
    #[track_caller]
    fn line(&self) -> Option<String> {
        match self.out.recv_timeout(STUCK_AFTER * 2) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("it prints nothing more, and does not end"),
        }
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        while !self.line().expect("it runs").contains(text) {}
    }

    fn send_line(&mut self) {
        let input = self.child.stdin.as_mut().expect("it has a standard input");
        input.write_all(b"\n").expect("it reads its input");
    }
}

/// A copy of one of the examples, with ports of its own and a model that streams slowly enough to be observed.
struct Example {
    name: &'static str,
    folder: Folder,
    api: String,
    page_port: u16,
}

impl Example {
    fn copy(name: &'static str) -> Self {
        let (folder, page_port) = (Folder::new(), free_port());
        let api = format!("127.0.0.1:{}", free_port());
        let sources = tree().join("examples").join(name);
        let copied = Command::new("cp").arg("-r").arg(sources.join(".")).arg(folder.path()).status();
        assert!(copied.expect("cp can be run").success());
        std::fs::create_dir(folder.path().join("written")).expect("a folder can be made");
        let replace = |file: &str, from: &str, to: &str| {
            let text = std::fs::read_to_string(folder.path().join(file)).expect("the file is there");
            assert!(text.contains(from), "{file}: {from}");
            write(&folder, file, &text.replace(from, to));
        };
        replace("holdpoint.toml", "127.0.0.1:8787", &api);
        replace("script.json", "\"delay_ms\": 20", "\"delay_ms\": 150");
        if name == "plain-browser" {
            replace("holdpoint.toml", "localhost:9100", &format!("localhost:{page_port}"));
        }
        Self { name, folder, api, page_port }
    }

    /// Serves the page as `npm run dev` or `node backend.mjs` does.
    fn serve_page(&self, arguments: &[&str]) -> Process {
        let page = Process::spawn(
            Command::new(ci("node", &[]))
                .args(arguments)
                .current_dir(self.folder.path())
                .env("HOLDPOINT_URL", format!("http://{}", self.api))
                .env("HOLDPOINT_KEY", KEY)
                .env("PORT", self.page_port.to_string()),
        );
        page.wait_for("http://localhost");
        page
    }

    fn run_stories(&self) {
        let screenshots = tree().join("target/example-pages");
        std::fs::create_dir_all(&screenshots).expect("a folder can be made");
        let folder = self.folder.path();
        let front_ends = tree().join("crates/holdpoint/tests/front_ends");
        // Before the script starts, whose lines are waited for.
        ci("node", &[]);
        ci("npm-packages", &[front_ends.join("browser").to_str().expect("the path is text"), "browser"]);
        let mut server = Server::start(folder, &["serve"]);
        let mut stories = Process::spawn(
            Command::new(front_ends.join("run"))
                .args(["browser", "stories.mjs", self.name])
                .arg(format!("http://localhost:{}", self.page_port))
                .args([&format!("http://{}", self.api), KEY])
                .args([folder, &screenshots])
                .arg(ci("chromium", &[])),
        );
        let mut printed = Vec::new();
        while let Some(line) = stories.line() {
            if line == "restart" {
                server.kill();
                server = Server::start(folder, &["serve"]);
                stories.send_line();
            }
            printed.push(line);
        }
        let ended = stories.child.wait().expect("it can be waited for");
        assert!(ended.success(), "{printed:#?}; {} has screenshots", screenshots.display());
        assert!(printed.contains(&"restart".to_owned()) && printed.len() >= 5, "{printed:#?}");
    }
}

/// Installs the packages of the example, and serves its page with Vite.
fn run_with_vite(name: &'static str) {
    let example = Example::copy(name);
    let sources = tree().join("examples").join(name);
    // It brings npm, too.
    ci("node", &[]);
    let packages = ci("npm-packages", &[sources.to_str().expect("the path is text"), name]);
    let linked = std::os::unix::fs::symlink(
        Path::new(&packages).join("node_modules"),
        example.folder.path().join("node_modules"),
    );
    linked.expect("a link can be made");
    let _page = example.serve_page(&["node_modules/vite/bin/vite.js"]);
    example.run_stories();
}

#[test]
fn the_plain_page_streams_approves_and_survives_a_restart() {
    let example = Example::copy("plain-browser");
    let _backend = example.serve_page(&["backend.mjs"]);
    example.run_stories();
}

#[test]
fn the_page_of_the_ai_sdk_streams_approves_and_survives_a_restart() {
    run_with_vite("ai-sdk-react");
}

#[test]
fn the_page_of_copilotkit_streams_approves_and_survives_a_restart() {
    run_with_vite("copilotkit-react");
}

/// Lines of a file that are neither empty nor a comment.
fn code_lines(file: &Path) -> usize {
    let text = std::fs::read_to_string(file).expect("it is text");
    let is_code = |line: &&str| !(line.trim().is_empty() || line.trim().starts_with("//"));
    text.lines().filter(is_code).count()
}

#[test]
fn each_page_has_fewer_than_a_hundred_lines_of_code() {
    for (name, files) in [
        ("plain-browser", &["page.html", "backend.mjs"][..]),
        ("ai-sdk-react", &["index.html", "vite.config.js", "src/main.jsx"]),
        ("copilotkit-react", &["index.html", "vite.config.js", "src/main.jsx"]),
    ] {
        let folder = tree().join("examples").join(name);
        let count: usize = files.iter().map(|file| code_lines(&folder.join(file))).sum();
        assert!((20..100).contains(&count), "{name}: {count}");
    }
}
