//! A simulated reader who runs the commands of a page: one shell, one folder, and a server in the background.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::block::{Block, Does};
use crate::expected::{json_fits, text_fits};

/// No command on a page takes this long; one that does is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(90);
/// The default address of a server, which pages show.
const ADDRESS: &str = "127.0.0.1:8787";
/// The ports of other servers that pages start. Each page has its own port, so that a reader can run two pages at once.
const BESIDE_PORTS: [&str; 3] = ["9100", "9102", "9103"];
const CONFIGURATION: &str = "holdpoint.toml";
/// The placeholder in pages for the token of a server without `[auth]`.
const TOKEN: &str = "Bearer TOKEN";
const DONE: &str = "--- the commands before this line have ended ---";

/// The script `holdpoint`: runs the program, and makes servers listen on a free port.
const PROGRAM: &str = r#"#!/bin/sh
case "$1" in
    serve|demo) exec "$HOLDPOINT_PROGRAM" "$@" --listen 127.0.0.1:0 ;;
    *) exec "$HOLDPOINT_PROGRAM" "$@" ;;
esac
"#;

/// The program is already built. `cargo run` starts it, and `cargo build` links it to the path that `make demo` uses.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
    "build "*"--profile demo -p holdpoint "*)
        mkdir -p "$CARGO_TARGET_DIR/demo"
        exec ln -sf "$(command -v holdpoint)" "$CARGO_TARGET_DIR/demo/holdpoint" ;;
esac
for word; do
    shift
    if [ "$word" = -- ]; then exec holdpoint "$@"; fi
done
echo 'this page asks cargo for more than to build and run the program' >&2
exit 1
"#;

pub(crate) struct Reader {
    page: String,
    folder: PathBuf,
    /// Replace the `BESIDE_PORTS`, in this order.
    beside_ports: [String; 3],
    shell: Child,
    typed: ChildStdin,
    out: Receiver<String>,
    err: Receiver<String>,
    server: Option<Server>,
    /// The previous block and its output, so that a command that only reads can be repeated.
    last: Option<Last>,
    run: Option<String>,
    approval: Option<String>,
}

struct Last {
    commands: String,
    said: String,
}

struct Server {
    child: Child,
    address: String,
    /// Only for a server without `[auth]`.
    token: Option<String>,
    out: Receiver<String>,
    said: String,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.server.take();
        end_group(&mut self.shell);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `make` may have started it, so end the whole process group.
        end_group(&mut self.child);
    }
}

/// Ends a process and all processes that it has started.
fn end_group(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    let _ = child.wait();
}

impl Reader {
    pub(crate) fn new(page: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("holdpoint-pages-{}-{number}", std::process::id()));
        for (name, script) in [("holdpoint", PROGRAM), ("cargo", CARGO)] {
            let path = folder.join("bin").join(name);
            std::fs::create_dir_all(folder.join("bin")).expect("a folder can be made");
            std::fs::write(&path, script).expect("it is written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it may be run");
        }
        std::fs::create_dir_all(folder.join("desk")).expect("a folder can be made");
        let mut command = command(&folder, "exec bash");
        let mut shell = command.stdin(Stdio::piped()).process_group(0).spawn().expect("a shell starts");
        let typed = shell.stdin.take().expect("it listens");
        let (out, err) = (lines(shell.stdout.take()), lines(shell.stderr.take()));
        let page = page.to_owned();
        let mut reader = Self {
            page,
            folder,
            beside_ports: BESIDE_PORTS.map(|_| free_port()),
            shell,
            typed,
            out,
            err,
            server: None,
            last: None,
            run: None,
            approval: None,
        };
        reader.run(0, "set -euo pipefail");
        reader
    }

    /// Makes the program available to the shell under this name.
    pub(crate) fn install(&self, name: &str, program: &Path) {
        std::os::unix::fs::symlink(program, self.folder.join("bin").join(name)).expect("it can be linked");
    }

    pub(crate) fn take(&mut self, block: &Block) {
        match &block.does {
            Does::Run { in_the_tree } => {
                let commands = self.with_ids(block);
                let commands = if *in_the_tree {
                    format!("pushd '{}' > /dev/null\n{commands}\npopd > /dev/null", crate::root().display())
                } else {
                    commands
                };
                let said = self.run(block.line, &commands);
                self.note_ids(&said);
                self.last = Some(Last { commands, said });
            }
            Does::Serve => {
                let server = self.serve(block);
                self.server = Some(server);
                self.last = None;
            }
            Does::Write { name } => {
                if name == CONFIGURATION {
                    self.check_configuration();
                }
                let text = with_ports(&block.text, &self.beside_ports);
                std::fs::write(self.folder.join("desk").join(name), text).expect("it is written");
            }
            Does::Expect { is_json } => self.expect(block, *is_json),
            Does::Show { .. } => {}
        }
    }

    /// Runs `holdpoint check` on the current configuration: before the page replaces it, and at the end, when the files
    /// that it names exist. The environment variables that it names are set for the check.
    pub(crate) fn check_configuration(&mut self) {
        if let Ok(text) = std::fs::read_to_string(self.folder.join("desk").join(CONFIGURATION)) {
            let named = text.lines().filter_map(|line| line.split_once('=')).filter_map(|(key, value)| {
                let is_variable = key.trim().ends_with("_env");
                is_variable.then(|| format!("{}=unused ", value.trim().trim_matches('"')))
            });
            self.run(0, &format!("{}holdpoint check > /dev/null", named.collect::<String>()));
        }
    }

    /// The commands with all placeholders replaced, as a reader would do.
    fn with_ids(&self, block: &Block) -> String {
        let mut commands = with_ports(&block.text, &self.beside_ports);
        for (word, id) in [("RUN_ID", &self.run), ("APPROVAL_ID", &self.approval)] {
            if commands.contains(word) {
                let id = id.as_ref().unwrap_or_else(|| {
                    panic!("{}:{}: nothing before this line shows a {word}", self.page, block.line)
                });
                commands = commands.replace(word, id);
            }
        }
        match &self.server {
            Some(server) => {
                let commands = commands.replace(ADDRESS, &server.address);
                match &server.token {
                    Some(token) => commands.replace(TOKEN, &format!("Bearer {token}")),
                    None => commands,
                }
            }
            None => commands,
        }
    }

    fn note_ids(&mut self, said: &str) {
        for (start, id) in [("run_", &mut self.run), ("apr_", &mut self.approval)] {
            for (at, _) in said.match_indices(start) {
                let part = |c: &char| c.is_ascii_alphanumeric() || *c == '_' || *c == '-';
                let found: String = said[at..].chars().take_while(part).collect();
                // Field names, such as `run_id`, begin in the same way.
                if found.len() > 20 {
                    *id = Some(found);
                }
            }
        }
    }

    /// Runs the commands. Returns their standard output.
    fn run(&mut self, line: usize, commands: &str) -> String {
        let typed = format!("{}\necho; echo '{DONE}'\n", commands.trim_end());
        self.typed.write_all(typed.as_bytes()).unwrap_or_else(|_| self.failed(line, commands, ""));
        let until = Instant::now() + STUCK_AFTER;
        let mut said = String::new();
        loop {
            match self.out.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(text) if text == DONE => return said,
                Ok(text) => {
                    said.push_str(&text);
                    said.push('\n');
                }
                Err(_) => self.failed(line, commands, &said),
            }
        }
    }

    fn failed(&self, line: usize, commands: &str, said: &str) -> ! {
        let err: Vec<String> = self.err.try_iter().collect();
        panic!(
            "{}:{line}: these commands failed or took too long:\n{commands}\n{said}\n{}",
            self.page,
            err.join("\n")
        )
    }

    fn serve(&mut self, block: &Block) -> Server {
        // The previous server is stopped first, because a reader would use the same port.
        self.server.take();
        let desk = block.text.trim_end();
        // `make` needs the Makefile in the tree; all other commands run in the folder of the page.
        let place = if desk.starts_with("make ") { crate::root() } else { self.folder.join("desk") };
        let mut command = command(&self.folder, desk);
        command.current_dir(place).stdin(Stdio::null()).process_group(0);
        let mut child = command.spawn().expect("it starts");
        let (out, err) = (lines(child.stdout.take()), lines(child.stderr.take()));
        let mut server = Server { child, address: String::new(), token: None, out, said: String::new() };
        let until = Instant::now() + STUCK_AFTER;
        let mut printed = String::new();
        while let Ok(line) = err.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if let Some((_, address)) = line.split_once("listening on http://") {
                server.address = address.trim().to_owned();
                server.said = format!("{line}\n");
                server.token = self.token(&server.address);
                if let Some(token) = &server.token {
                    let next = err.recv_timeout(until.saturating_duration_since(Instant::now()));
                    assert_eq!(next.ok().as_deref(), Some(&*format!("token: {token}")), "the next line");
                    server.said.push_str(&format!("token: {token}\n"));
                }
                return server;
            }
            printed.push_str(&line);
            printed.push('\n');
        }
        panic!("{}:{}: the server does not listen: {printed}", self.page, block.line)
    }

    /// The token that the server at this address has written to its token file.
    fn token(&self, address: &str) -> Option<String> {
        let (_, port) = address.rsplit_once(':')?;
        let path = self.folder.join(format!("state/holdpoint/127.0.0.1-{port}.token"));
        Some(std::fs::read_to_string(path).ok()?.trim_end().to_owned())
    }

    /// Compares the output of the previous block. Repeats a command that only reads, because runs continue meanwhile.
    fn expect(&mut self, block: &Block, is_json: bool) {
        let fits =
            |said: &str| if is_json { json_fits(&block.text, said) } else { text_fits(&block.text, said) };
        let until = Instant::now() + STUCK_AFTER;
        let (page, line) = (self.page.clone(), block.line);
        let Some(Last { commands, mut said }) = self.last.take() else {
            let server = self.server.as_mut();
            let server = server.unwrap_or_else(|| panic!("{page}:{line}: there is no output before this"));
            while !fits(&server.said.replace(&server.address, ADDRESS)) {
                let left = until.saturating_duration_since(Instant::now());
                let Ok(more) = server.out.recv_timeout(left) else {
                    panic!("{page}:{line}: the server printed something else:\n{}", server.said)
                };
                server.said.push_str(&more);
                server.said.push('\n');
            }
            let said = server.said.clone();
            self.note_ids(&said);
            return;
        };
        let only_looks = !commands.contains("POST") && !commands.contains(" -d ");
        loop {
            let address = self.server.as_ref().map_or(ADDRESS, |server| server.address.as_str());
            if fits(&said.replace(address, ADDRESS)) {
                // Output of a later attempt may contain new ids.
                self.note_ids(&said);
                return;
            }
            assert!(
                only_looks && Instant::now() < until,
                "{page}:{line}: the command printed something else:\n{said}"
            );
            said = self.run(line, &commands);
        }
    }
}

/// A free port. It is below the range that the system assigns by itself, so that no other process gets it before the
/// page needs it.
fn free_port() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(64);
    let ports = std::iter::repeat_with(|| first.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed)));
    let mut ports = ports.take(2_000).filter_map(|number| u16::try_from(30_000 + number % 2_000).ok());
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.expect("there is a free port").to_string()
}

/// A shell command that finds the program under its name.
fn command(folder: &Path, line: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command
        .args(["-c", line])
        .current_dir(folder.join("desk"))
        .env("PATH", format!("{}:{path}", folder.join("bin").display()))
        .env("HOLDPOINT_PROGRAM", env!("CARGO_BIN_EXE_holdpoint"))
        .env("XDG_STATE_HOME", folder.join("state"))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        // The terminal in which the tests run may have set these.
        .env_remove("HOLDPOINT_TOKEN")
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .env_remove("MFLAGS")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn lines(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let from = from.expect("it is a pipe");
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn with_ports(text: &str, ports: &[String; 3]) -> String {
    BESIDE_PORTS.iter().zip(ports).fold(text.to_owned(), |text, (known, port)| text.replace(known, port))
}
