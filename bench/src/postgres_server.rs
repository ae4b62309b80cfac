//! A private PostgreSQL server: fresh, with default settings, on a socket of its own, removed with the process that
//! started it.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::failure::Failure;

const USER: &str = "bench";
/// The settings that decide what a figure means; all others keep the server's defaults.
const SETTINGS: &str = "listen_addresses = ''\nfsync = on\nsynchronous_commit = on\n";
/// What the watch process does once its input is closed: `$0` is the data, `$1` the socket. A server that is still
/// being initialised has a negative number in its file; it exits by itself once its files are gone.
const LAST_WORDS: &str = r#"cat
server=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null)
case "$server" in
    [0-9]*)
        kill -QUIT "$server"
        while kill -0 "$server" 2>/dev/null; do sleep 0.05; done
        ;;
esac
rm -rf "$0" "$1""#;

static SERVER_COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct PostgresServer {
    pub(crate) address: String,
    watch: Child,
}

/// Where the server's files are, and which account it runs as.
struct ServerPlace {
    programs: PathBuf,
    folder: PathBuf,
    /// A socket path must be short.
    socket: PathBuf,
    account: Option<Account>,
}

/// Set if this process is root, because PostgreSQL refuses to run as root.
#[derive(Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

impl PostgresServer {
    /// The data is in this folder, so its disk is what is measured.
    pub(crate) fn start(within: &Path) -> Result<Self, Failure> {
        let number = SERVER_COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-postgres-{}-{number}", process::id());
        fs::create_dir_all(within)?;
        let place = ServerPlace {
            programs: programs()?,
            folder: within.canonicalize()?.join(&name),
            socket: env::temp_dir().join(&name),
            account: account()?,
        };
        let watch = place.watch()?;
        let address = format!("postgres://{USER}@{}/postgres", percent_encoded(&place.socket));
        // If anything fails from here on, the watch process cleans up.
        let server = Self { address, watch };
        for folder in [&place.folder, &place.socket] {
            fs::create_dir_all(folder)?;
            if let Some(Account { user, group }) = place.account {
                chown(folder, Some(user), Some(group))?;
            }
        }
        let data = place.folder.join("data");
        let user = format!("--username={USER}");
        let settled = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "-D"];
        place.run(place.program("initdb").arg(user).args(settled).arg(&data))?;
        let file = data.join("postgresql.conf");
        let socket = format!("unix_socket_directories = '{}'\n", place.socket.display());
        fs::write(&file, fs::read_to_string(&file)? + SETTINGS + &socket)?;
        let log = place.folder.join("log");
        place.run(
            place.program("pg_ctl").args(["start", "--wait", "--silent", "-D"]).arg(&data).arg("-l").arg(log),
        )?;
        Ok(server)
    }
}

/// Starts a server, prints its address, and stops it when stdin ends.
pub(crate) fn serve(within: &Path) -> Result<(), Failure> {
    let server = PostgresServer::start(within)?;
    println!("{}", server.address);
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Closing its input makes the watch process stop the server; wait until it is done.
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

impl ServerPlace {
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        if let Some(Account { user, group }) = self.account {
            command.uid(user).gid(group);
        }
        command.current_dir(&self.folder).env_remove("PGDATA").env("LC_ALL", "C");
        command
    }

    fn run(&self, command: &mut Command) -> Result<(), Failure> {
        // Into a file: a server that stays in the background would keep a pipe open forever.
        let path = self.folder.join("said");
        let said = fs::File::create(&path)?;
        let again = said.try_clone()?;
        let status = command.stdin(Stdio::null()).stdout(said).stderr(again).status();
        if status.as_ref().is_ok_and(process::ExitStatus::success) {
            return Ok(());
        }
        let printed = fs::read_to_string(path).unwrap_or_default();
        let reach = "its account must be able to reach the folder; --folder names another one";
        Err(Failure::new(format!("PostgreSQL does not start ({reach}): {command:?}: {status:?}\n{printed}")))
    }

    fn watch(&self) -> Result<Child, Failure> {
        let mut shell = Command::new("sh");
        shell.args(["-c", LAST_WORDS]).arg(&self.folder).arg(&self.socket).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A Ctrl-C that interrupts the measurement must not end the process that cleans up after it.
        shell.process_group(0);
        Ok(shell.spawn()?)
    }
}

/// The folder with PostgreSQL's programs; the script installs them if possible.
fn programs() -> Result<PathBuf, Failure> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/postgres");
    let found = Command::new(&script).stderr(Stdio::inherit()).output()?;
    if !found.status.success() {
        return Err(Failure::new(format!("{} found no PostgreSQL", script.display())));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()))
}

/// An account other than root, if this process is root.
fn account() -> Result<Option<Account>, Failure> {
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        return Ok(None);
    }
    let accounts = fs::read_to_string("/etc/passwd")?;
    let find = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map_while(|number| number.parse().ok());
        Some(Account { user: numbers.next()?, group: numbers.next()? })
    };
    let found = find("postgres").or_else(|| find("nobody"));
    found.map(Some).ok_or_else(|| Failure::new("PostgreSQL needs an account beside root"))
}

/// In a connection URL the socket folder takes the place of the host.
fn percent_encoded(folder: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let path = folder.to_string_lossy();
    path.bytes()
        .map(|byte| if plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::percent_encoded;

    #[test]
    fn a_folder_in_an_address_has_no_slashes() {
        assert_eq!(percent_encoded(Path::new("/tmp/a b-1.x")), "%2Ftmp%2Fa%20b-1.x");
    }
}
