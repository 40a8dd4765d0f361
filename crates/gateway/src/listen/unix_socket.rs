//! Unix socket of the process that holds the sessions. `stayput stdio` connects to it with lines, the local user's
//! tools with HTTP.

use std::{
    fs, io,
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal};
use stayput_core::{Handle, Key};
use stayput_upstream::StderrSink;
use tokio::{
    io::AsyncWriteExt as _,
    net::{UnixListener, UnixStream},
    sync::watch,
};

use super::{
    lines::Lines,
    stdio::{StdioClient, StdioConversation},
};
use crate::{
    auth::Principal,
    config::command_server,
    connections::connection::ConnectionGuard,
    listen::{
        child_stderr, local_http,
        proxy_handshake::{FORM, HandshakeReply, HandshakeRequest, line},
    },
    state::{AppState, ServerSet},
};

/// Name of the socket in the data folder.
const SOCKET_NAME: &str = "socket";

/// Longest path that a socket address can hold on every system.
const PATH_LIMIT: usize = 100;

/// Time limit for the first line.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Address of the socket. A path that is too long is replaced by one through the file descriptor of the open data
/// folder.
struct Address {
    path: PathBuf,
    _folder: Option<fs::File>,
}

impl Address {
    fn new(data: &Path) -> io::Result<Self> {
        let path = data.join(SOCKET_NAME);
        if path.as_os_str().len() <= PATH_LIMIT || !cfg!(target_os = "linux") {
            return Ok(Self { path, _folder: None });
        }
        let folder = fs::File::open(data)?;
        let path = format!("/proc/self/fd/{}/{SOCKET_NAME}", folder.as_raw_fd()).into();
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// Connects to the process that holds the sessions in this folder.
///
/// # Errors
/// If no process does, or the process belongs to another user.
pub(crate) async fn connect(data: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(&Address::new(data)?.path).await?;
    check(&stream)?;
    Ok(stream)
}

/// Refuses a peer of another user, whatever the permissions of the file are.
fn check(stream: &UnixStream) -> io::Result<()> {
    if stream.peer_cred()?.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let sentence = "the process at the other end of the socket is of another user";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, sentence))
}

/// Process id of the holder of the sessions in this folder, if it accepts connections.
pub(crate) fn holder_pid(data: &Path) -> Option<i32> {
    let stream = std::os::unix::net::UnixStream::connect(Address::new(data).ok()?.path).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    Some(peer.pid.as_raw_nonzero().get())
}

/// Process that holds the sessions in a folder. A signal to it never reaches another process that got its process id
/// meanwhile.
#[derive(Debug)]
pub(crate) struct HolderProcess {
    pid: Pid,
    #[cfg(target_os = "linux")]
    descriptor: OwnedFd,
}

impl HolderProcess {
    /// Process id as this process sees it.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends SIGTERM to the process.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        rustix::process::pidfd_send_signal(&self.descriptor, Signal::TERM)?;
        #[cfg(not(target_os = "linux"))]
        rustix::process::kill_process(self.pid, Signal::TERM)?;
        Ok(())
    }
}

/// Returns the process that accepts connections in this folder, as the kernel names it. `None` if it is not visible
/// here, because it runs in another pid namespace.
///
/// # Errors
/// If no process accepts connections in the folder (see [`is_unused`]), or the process belongs to another user.
pub(crate) async fn holder(data: &Path) -> io::Result<Option<HolderProcess>> {
    let stream = connect(data).await?;
    let Some(pid) = stream.peer_cred()?.pid().and_then(Pid::from_raw) else { return Ok(None) };
    #[cfg(target_os = "linux")]
    let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    // Its connections end with it: if this one is open, the process has not been replaced.
    match stream.try_read(&mut [0]) {
        Ok(0) => Err(io::ErrorKind::ConnectionRefused.into()),
        _ => Ok(Some(HolderProcess {
            pid,
            #[cfg(target_os = "linux")]
            descriptor,
        })),
    }
}

/// Whether an error of [`connect`] or [`holder`] says that no process accepts connections.
pub(crate) fn is_unused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Listening socket. Only the process that holds the sessions binds it, so an existing socket file is left over from
/// an earlier holder.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    pub(crate) fn bind(data: &Path) -> io::Result<Self> {
        let (path, address) = (data.join(SOCKET_NAME), Address::new(data)?);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&address.path)?;
        // The folder is closed to other users, so none of them could connect before this.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path })
    }

    /// Accepts the next connection of this user.
    pub(crate) async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) if check(&stream).is_ok() => return stream,
                Ok(_) => {}
                // Most likely too many open files; wait until some are closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Serves one client until it disconnects, or until `stopped`. `lasting` means that this holder is likely to come
/// back after it stops.
pub(crate) async fn serve(
    app: Arc<AppState>,
    stream: UnixStream,
    lasting: bool,
    mut stopped: watch::Receiver<bool>,
) {
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, local_http::is_spoken(&stream)).await {
        Ok(Ok(false)) => {}
        Ok(Ok(true)) => return local_http::serve(app, stream, stopped).await,
        Ok(Err(_)) | Err(_) => return,
    }
    let (read, mut write) = stream.into_split();
    let mut lines = Lines::new(read);
    let Ok(Some(Ok(first))) = tokio::time::timeout(HANDSHAKE_TIMEOUT, lines.next()).await else {
        return;
    };
    let (sink, stderr) = child_stderr::channel();
    let (talk, welcome) = match enter(&app, &first, sink).await {
        Ok((talk, known)) => {
            let welcome = HandshakeReply { stayput: FORM, known, lasting, refused: None };
            (Some(talk), welcome)
        }
        // A client that reconnects while this holder stops gets no answer and tries again: the next holder can serve
        // it.
        Err(_) if *stopped.borrow() => return,
        Err(sentence) => (None, HandshakeReply::refusing(sentence)),
    };
    let Ok(welcome) = line(&welcome) else { return };
    let written = write.write_all(&welcome).await;
    let Some(talk) = talk else { return };
    let stop = async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    if written.is_err() || talk.run(lines, write, stderr, stop).await {
        talk.leave().await;
    }
}

/// Performs the handshake. Returns the conversation, and whether its connection is known from before.
async fn enter(
    app: &Arc<AppState>,
    first: &[u8],
    stderr: StderrSink,
) -> Result<(Arc<StdioConversation>, bool), String> {
    let hello: HandshakeRequest = serde_json::from_slice(first)
        .map_err(|_| "this is another version of stayput; stop the one that holds the sessions")?;
    if hello.stayput != FORM {
        let own = env!("CARGO_PKG_VERSION");
        return Err(format!(
            "the sessions are held by stayput {own}, which does not understand stayput {}; stop it, or \
             close its clients",
            hello.version
        ));
    }
    let app = match hello.definition.has_servers() {
        false => app.clone(),
        true => {
            let config =
                hello.definition.config_with(Some(stderr)).map_err(|error| error.to_string())?;
            let server_set =
                ServerSet::new(config.servers, config.settings.identify, config.settings.expiry);
            Arc::new(app.with_servers(server_set))
        }
    };
    let known = app.servers.keys().map(String::as_str);
    let target = command_server::choose(known, hello.server.as_deref())?;
    let name: Handle = hello.name.parse().map_err(|_| "the connection has no name")?;
    let key = hello.session.as_deref().map(Key::named).transpose();
    let key = key.map_err(|error| error.to_string())?;
    let before = if hello.again { load_connection(&app, &name).await? } else { None };
    let before = before.filter(|before| before.target == target);
    let (known, forgotten) = (before.is_some(), hello.again && before.is_none());
    let talk = StdioConversation::new(StdioClient {
        app,
        target,
        name,
        key,
        forgotten,
        drain: Duration::ZERO,
    });
    if let Some(before) = before {
        talk.resume(before).await;
    }
    Ok((talk, known))
}

/// Loads the earlier connection from the store.
async fn load_connection(app: &AppState, name: &Handle) -> Result<Option<ConnectionGuard>, String> {
    let owner = Principal::local().owner;
    if app.connections.has(&name.hash(&owner)) {
        return Err("this connection is in use".to_owned());
    }
    app.connection(&owner, name).await.map_err(|error| error.to_string())
}
