//! Warden: a small process that starts children and ends them.
//!
//! It has one thread, blocks, has no runtime and hardly any memory, and does one thing at a time. It is a
//! subreaper: a descendant that loses its parent becomes the warden's child, so all descendants of its children
//! stay below it. When its socket ends, because the Stayput process closed it or died, the warden kills
//! everything below itself and exits.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io::{self, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, retry_on_intr},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send,
        sockopt::socket_type,
    },
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, pidfd_open, set_child_subreaper,
        setsid, wait, waitpid,
    },
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGTERM};

use super::{
    Program,
    frame::{Answer, Frames, Request},
    kill_set::{KillSet, SearchScope, clear},
    leader::{self, Leader},
    mark::{MarkHolder, WARDEN},
    pipes::ChildPipes,
    procfs,
    spawn::spawn,
};

/// Number of checks after TERM whether all processes are gone. The checks are 10 ms apart: half a second in all.
const MAX_CHECKS: u32 = 50;

/// Longest pause between two rounds of KILL.
const KILL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the warden until its socket, which is its standard input, has ended and no process below it lives.
///
/// Belongs into the main function of the program that a [`WardenCommand`](super::WardenCommand) names, before
/// any thread or runtime is started. That function returns the exit code.
#[must_use]
pub fn warden_main() -> ExitCode {
    match Warden::new() {
        Ok(mut warden) => {
            warden.serve();
            warden.end_all();
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(
                io::stderr(),
                "the warden cannot run: {error}; it is started by Stayput with a socket as its \
                 standard input, and not by hand"
            );
            ExitCode::FAILURE
        }
    }
}

struct Warden {
    children: HashMap<u64, WardenChild>,
    frames: Frames,
    /// Descriptors that came with the frames: three for each child to start, in the order of the frames.
    fds: VecDeque<OwnedFd>,
    /// Readable when a child has died.
    bell: UnixStream,
    /// Pidfd of the Stayput process. A forked copy of that process holds the socket open, so its death does not
    /// always end the socket.
    parent: Option<OwnedFd>,
}

/// Child that was started and is not yet reaped.
struct WardenChild {
    leader: Leader,
    mark: String,
    /// Whether its exit was reported.
    reported: bool,
}

impl Warden {
    fn new() -> io::Result<Self> {
        socket_type(io::stdin())?;
        // Fails only for a group leader, which signals of the terminal do not reach anyway.
        let _ = setsid();
        set_child_subreaper(Some(getpid()))?;
        // A signal that stops Stayput stops the warden later, through the socket. The signals are caught and
        // not ignored, because children inherit ignored signals.
        for signal in [SIGINT, SIGHUP, SIGTERM, SIGPIPE] {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        }
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, ringer)?;
        let (children, frames, fds) = (HashMap::new(), Frames::default(), VecDeque::new());
        Ok(Self { children, frames, fds, bell, parent: parent() })
    }

    /// Serves requests until the socket ends or sends a frame that cannot be decoded.
    fn serve(&mut self) {
        let stdin = io::stdin();
        loop {
            let mut fds =
                vec![PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
            fds.extend(self.parent.as_ref().map(|parent| PollFd::new(parent, PollFlags::IN)));
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let ready = |place: usize| fds.get(place).is_some_and(|fd| !fd.revents().is_empty());
            let (readable, child_died, parent_died) = (ready(0), ready(1), ready(2));
            if child_died {
                while matches!((&self.bell).read(&mut [0; 64]), Ok(1..)) {}
                self.reap_orphans();
                if self.report_exits().is_none() {
                    return;
                }
            }
            if parent_died || readable && self.receive_requests().is_none() {
                return;
            }
        }
    }

    /// Reads the available requests and executes them. Returns `None` if no more can come.
    fn receive_requests(&mut self) -> Option<()> {
        let mut bytes = [0; 16 * 1024];
        match receive(&mut bytes, &mut self.fds) {
            Err(Errno::INTR | Errno::AGAIN) => return Some(()),
            Ok(0) | Err(_) => return None,
            Ok(length) => self.frames.push(bytes.get(..length)?),
        }
        while let Some(frame) = self.frames.next().ok()? {
            match Request::decode(&frame)? {
                Request::Start { number, mark, program } => self.start(number, mark, &program)?,
                Request::Signal { number, signal } => self.signal(number, signal),
                Request::Reap { number } => self.reap(number)?,
            }
        }
        Some(())
    }

    fn start(&mut self, number: u64, mark: String, program: &Program) -> Option<()> {
        let mut end = || self.fds.pop_front();
        let child_pipes = ChildPipes([end()?, end()?, end()?]);
        match spawn(program, &mark, child_pipes) {
            Ok(pid) => {
                let child = WardenChild { leader: Leader::new(pid), mark, reported: false };
                self.children.insert(number, child);
                send_frame(&Answer::Started { number, pid: pid.as_raw_pid() })
            }
            Err(refused) => send_frame(&Answer::Failed { number, refused }),
        }
    }

    fn signal(&mut self, number: u64, signal: i32) {
        if let (Some(child), Some(signal)) =
            (self.children.get_mut(&number), Signal::from_named_raw(signal))
        {
            child.leader.signal(signal);
        }
    }

    fn reap(&mut self, number: u64) -> Option<()> {
        let Some(mut child) = self.children.remove(&number) else {
            return send_frame(&Answer::ReapResult { number, leftovers: 0 });
        };
        let tree = child.leader.kill_group();
        let exited = leader::reaped(|| child.leader.reap());
        if !child.reported {
            send_frame(&Answer::Exited { number, exited })?;
        }
        self.reap_orphans();
        let mut kill_set = KillSet::new(child.leader.pid().as_raw_pid(), tree);
        if self.children.is_empty() {
            // No other child is left, so everything below the warden belongs to this one, marked or not.
            kill_set.add(procfs::below(me()));
        }
        let mut kill_sets = [kill_set];
        let search_scope = SearchScope::Orphans { of: me(), leaders: self.leaders() };
        let wanted = |mark: &str| (mark == child.mark).then_some(0);
        clear(&search_scope, &mut kill_sets, wanted, || self.reap_orphans());
        let leftovers = kill_sets[0].leftovers().try_into().unwrap_or(u64::MAX);
        send_frame(&Answer::ReapResult { number, leftovers })
    }

    /// Reports new exits. A leader that has exited stays a zombie until it is reaped on request, so that its
    /// group keeps its id.
    fn report_exits(&mut self) -> Option<()> {
        for (number, child) in self.children.iter_mut().filter(|(_, child)| !child.reported) {
            if let Some(exited) = child.leader.peek() {
                child.reported = true;
                send_frame(&Answer::Exited { number: *number, exited })?;
            }
        }
        Some(())
    }

    /// Reaps processes whose parents died. The warden is their parent now, and no other process waits for them.
    fn reap_orphans(&self) {
        let leaders = self.leaders();
        for orphan in procfs::children(me()).into_iter().filter(|pid| !leaders.contains(pid)) {
            if let Some(pid) = Pid::from_raw(orphan) {
                let _ = retry_on_intr(|| waitpid(Some(pid), WaitOptions::NOHANG));
            }
        }
    }

    fn leaders(&self) -> HashSet<i32> {
        self.children.values().map(|child| child.leader.pid().as_raw_pid()).collect()
    }

    /// Ends everything below the warden and every process with one of its marks. Blocks until the tree is
    /// empty.
    fn end_all(self) {
        for process in procfs::below(me()) {
            process.signal(Signal::TERM);
        }
        for _ in 0..MAX_CHECKS {
            reap_all();
            if procfs::below(me()).is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let mut pause = Duration::from_millis(1);
        loop {
            let below = procfs::below(me());
            if below.is_empty() {
                break;
            }
            for process in below {
                process.signal(Signal::KILL);
            }
            thread::sleep(pause);
            pause = KILL_INTERVAL.min(pause * 2);
            reap_all();
        }
        let marks: HashSet<String> = self.children.into_values().map(|child| child.mark).collect();
        let wanted = |mark: &str| marks.contains(mark).then_some(0);
        clear(&SearchScope::Machine, &mut [KillSet::default()], wanted, || {});
    }
}

fn me() -> i32 {
    getpid().as_raw_pid()
}

fn reap_all() {
    while matches!(retry_on_intr(|| wait(WaitOptions::NOHANG)), Ok(Some(_))) {}
}

/// Pidfd of the Stayput process, if it is the parent of this warden.
fn parent() -> Option<OwnedFd> {
    let prefix = std::env::var(WARDEN).ok()?;
    let holder = MarkHolder::parse(&format!("{prefix}.0"))?;
    let parent = getppid().filter(|parent| parent.as_raw_pid() == holder.process.pid)?;
    pidfd_open(parent, PidfdFlags::empty()).ok()
}

fn receive(bytes: &mut [u8], fds: &mut VecDeque<OwnedFd>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let slices = &mut [IoSliceMut::new(bytes)];
    let received = recvmsg(io::stdin(), slices, &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            fds.extend(descriptors);
        }
    }
    Ok(received.bytes)
}

/// Sends an answer and blocks until it is written. Returns `None` if the socket is closed.
fn send_frame(answer: &Answer) -> Option<()> {
    let frame = answer.encode();
    let mut rest = frame.as_slice();
    while !rest.is_empty() {
        let sent = retry_on_intr(|| send(io::stdin(), rest, SendFlags::NOSIGNAL)).ok()?;
        rest = rest.get(sent..)?;
    }
    Some(())
}
