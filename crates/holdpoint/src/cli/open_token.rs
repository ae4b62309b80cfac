//! The token of a server without `[auth]`. It is generated once for each address and saved in a file that only its user
//! can read. The next start and the other commands find it there.

use std::env;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdpoint_http::open_token_file;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::problem::{Exit, Problem};

/// 128 random bits.
const TOKEN_BYTES: usize = 16;
/// The token and a line break; a longer file is not a token file.
const FILE_BYTES_MAX: u64 = 64;

/// A server's token, and the file where the next start finds it.
pub(super) struct OpenToken {
    pub(super) text: String,
    /// The error says why the token was not saved.
    pub(super) saved_to: Result<PathBuf, String>,
}

/// Why a token file is not used.
#[derive(Debug, PartialEq, Eq)]
enum TokenFileError {
    /// Other users can access it, so another user may know the token or may have chosen it.
    Unsafe(String),
    /// It cannot be read or written.
    Failed(String),
}

impl OpenToken {
    /// The token that a server at this address had before, or a new one. The port must be the bound one, not 0.
    pub(super) fn for_server(address: SocketAddr) -> Result<Self, Problem> {
        let Some(folder) = state_folder() else {
            let why = "neither XDG_STATE_HOME nor HOME names a folder".to_owned();
            return Ok(Self { text: generate_token()?, saved_to: Err(why) });
        };
        let path = folder.join(open_token_file(address));
        match load_or_create(&folder, &path) {
            Ok(text) => Ok(Self { text, saved_to: Ok(path) }),
            Err(OpenTokenError::Problem(problem)) => Err(problem),
            Err(OpenTokenError::File(TokenFileError::Failed(why))) => {
                Ok(Self { text: generate_token()?, saved_to: Err(why) })
            }
            Err(OpenTokenError::File(TokenFileError::Unsafe(why))) => Err(Problem::new(
                "UNSAFE_TOKEN_FILE",
                format!("the token of this server is not safe there: {why}"),
                "Remove it, and the server draws another token; or set XDG_STATE_HOME to a folder of your own.",
                Exit::Other,
            )),
        }
    }

    /// The saved token of a server on this machine for this port, if there is one. The error says why a file is not
    /// used.
    pub(super) fn for_client(port: u16) -> Result<Option<String>, String> {
        let Some(folder) = state_folder() else { return Ok(None) };
        let path = folder.join(open_token_file(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        match check_folder(&folder).and_then(|there| if there { read(&path) } else { Ok(None) }) {
            Ok(token) => Ok(token),
            Err(TokenFileError::Unsafe(why) | TokenFileError::Failed(why)) => Err(why),
        }
    }
}

enum OpenTokenError {
    File(TokenFileError),
    Problem(Problem),
}

impl From<TokenFileError> for OpenTokenError {
    fn from(unusable: TokenFileError) -> Self {
        Self::File(unusable)
    }
}

impl From<Problem> for OpenTokenError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

fn load_or_create(folder: &Path, path: &Path) -> Result<String, OpenTokenError> {
    if !check_folder(folder)? {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|why| TokenFileError::Failed(format!("{} cannot be made: {why}", folder.display())))?;
        check_folder(folder)?;
    }
    if let Some(saved) = read(path)? {
        return Ok(saved);
    }
    let generated = generate_token()?;
    match save(folder, path, &generated) {
        Ok(()) => Ok(generated),
        // Another Holdpoint server on the same port of another loopback address was faster.
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            let failed = || TokenFileError::Failed(format!("{} is being replaced", path.display()));
            Ok(read(path)?.ok_or_else(failed)?)
        }
        Err(why) => {
            Err(TokenFileError::Failed(format!("{} cannot be written: {why}", path.display())).into())
        }
    }
}

pub(super) fn state_folder() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("holdpoint"))
}

/// Whether the folder exists. Fails if another user could put files into it.
fn check_folder(folder: &Path) -> Result<bool, TokenFileError> {
    let name = folder.display();
    let found = match fs::symlink_metadata(folder) {
        Ok(found) => found,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(why) => return Err(TokenFileError::Failed(format!("{name} cannot be looked at: {why}"))),
    };
    if !found.is_dir() {
        return Err(TokenFileError::Unsafe(format!("{name} is not a folder, or is a symbolic link")));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(TokenFileError::Unsafe(format!("{name} belongs to another user")));
    }
    if found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(TokenFileError::Unsafe(format!("other users can write into {name} (mode {mode:04o})")));
    }
    Ok(true)
}

/// Checks the opened file and not its path, so that the file cannot be swapped between the check and the read.
fn read(path: &Path) -> Result<Option<String>, TokenFileError> {
    let name = path.display();
    // NONBLOCK, because the path may be a named pipe.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) if why.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(TokenFileError::Unsafe(format!("{name} is a symbolic link")));
        }
        Err(why) => return Err(TokenFileError::Unsafe(format!("{name} cannot be opened: {why}"))),
    };
    let failed = |why: io::Error| TokenFileError::Failed(format!("{name} cannot be read: {why}"));
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(TokenFileError::Unsafe(format!("{name} is not a regular file")));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(TokenFileError::Unsafe(format!("{name} belongs to another user")));
    }
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(TokenFileError::Unsafe(format!("other users have access to {name} (mode {mode:04o})")));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim_end();
    let is_ours = token.len() == 2 * TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_ours {
        Ok(Some(token.to_owned()))
    } else {
        Err(TokenFileError::Unsafe(format!("{name} does not contain a token")))
    }
}

/// Writes the whole file or nothing, and never overwrites an existing file.
fn save(folder: &Path, path: &Path, token: &str) -> io::Result<()> {
    let unfinished = folder.join(format!(
        ".{}.unfinished",
        generate_token().map_err(|problem| io::Error::other(problem.to_string()))?
    ));
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(format!("{token}\n").as_bytes())?;
        file.sync_all()?;
        fs::hard_link(&unfinished, path)
    };
    let outcome = written();
    // If this fails too, an unused file is left behind.
    let _ = fs::remove_file(&unfinished);
    outcome
}

fn generate_token() -> Result<String, Problem> {
    let mut bytes = [0_u8; TOKEN_BYTES];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| {
        let next = "See whether this system has a source of random numbers.";
        Problem::new("NO_RANDOMNESS", "no random numbers can be drawn for a token", next, Exit::Other)
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = env::temp_dir().join(format!("holdpoint-token-{}-{number}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn state(&self) -> PathBuf {
            self.0.join("state")
        }

        fn token(&self) -> PathBuf {
            self.state().join("127.0.0.1-8787.token")
        }

        /// The reason why no token file is used.
        fn refused(&self) -> String {
            match load_or_create(&self.state(), &self.token()) {
                Err(OpenTokenError::File(TokenFileError::Unsafe(why))) => why,
                Err(OpenTokenError::File(TokenFileError::Failed(why))) => panic!("it failed: {why}"),
                Err(OpenTokenError::Problem(problem)) => panic!("{problem}"),
                Ok(token) => panic!("{token} is used"),
            }
        }

        fn load_token(&self) -> String {
            match load_or_create(&self.state(), &self.token()) {
                Ok(token) => token,
                Err(_) => panic!("no token"),
            }
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_token_is_generated_once_and_readable_only_by_its_user() {
        let folder = TestFolder::new();
        let token = folder.load_token();
        assert_eq!(folder.load_token(), token, "the next start finds it");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
        assert_eq!((mode(&folder.token()), mode(&folder.state())), (0o600, 0o700));
        let names: Vec<_> = fs::read_dir(folder.state()).expect("the folder").collect();
        assert_eq!(names.len(), 1, "nothing unfinished is left: {names:?}");
        assert_ne!(TestFolder::new().load_token(), token, "another folder has another one");
    }

    #[test]
    fn a_token_file_that_other_users_can_access_is_not_used() {
        let folder = TestFolder::new();
        let token = folder.load_token();
        let allow = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        };
        for mode in [0o640, 0o604, 0o620, 0o666] {
            allow(&folder.token(), mode);
            assert!(folder.refused().contains(&format!("{mode:04o}")), "{mode:o}");
        }
        allow(&folder.token(), 0o600);
        allow(&folder.state(), 0o770);
        assert!(folder.refused().contains("can write into"));
        allow(&folder.state(), 0o700);
        assert_eq!(folder.load_token(), token);

        let elsewhere = folder.0.join("elsewhere");
        fs::rename(folder.token(), &elsewhere).expect("it is moved");
        symlink(&elsewhere, folder.token()).expect("a link");
        assert!(folder.refused().contains("symbolic link"));
        fs::remove_file(folder.token()).expect("it is ours");
        for wrong in ["", "short\n", &"g".repeat(32), &"a".repeat(33)] {
            fs::write(folder.token(), wrong).expect("it is written");
            allow(&folder.token(), 0o600);
            assert!(folder.refused().contains("does not contain a token"), "{wrong:?}");
            fs::remove_file(folder.token()).expect("it is ours");
        }
        fs::create_dir(folder.token()).expect("a folder");
        assert!(folder.refused().contains("not a regular file"));

        let linked = TestFolder::new();
        symlink(folder.state(), linked.state()).expect("a link");
        assert!(linked.refused().contains("symbolic link"));
    }
}
