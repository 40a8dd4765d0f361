//! The warden: a small process that starts children, and above all ends them.
//!
//! It is single and blocks, has no runtime and hardly any memory, and does one thing at a time. All
//! that descends from its children stays below it, because it is a subreaper: who loses his parent
//! becomes its child. When its socket ends, because the Stayput process said so or is dead, it kills
//! everything below itself and goes.

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
    leader::{self, Leader},
    mark::{Holder, WARDEN},
    pipes::Ends,
    proc,
    rest::{Claim, Ground, clear},
    spawn::spawn,
};

/// How often is looked whether all have gone after TERM, a moment apart: half a second.
const LOOKS: u32 = 50;

/// The longest pause between two rounds of KILL.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs the warden until its socket ends, which is its standard input, and nothing below it lives.
///
/// For the main function of whatever a [`WardenCommand`](super::WardenCommand) names, before it has
/// started a thread or a runtime. It returns what that function is to return.
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
    wards: HashMap<u64, Ward>,
    frames: Frames,
    /// What came with the frames: three for each child that is to be started, in their order.
    fds: VecDeque<OwnedFd>,
    /// Rings when a child has died.
    bell: UnixStream,
    /// The Stayput process. A forked copy of it holds our socket open, so the end of that is not all.
    parent: Option<OwnedFd>,
}

/// A child that was started and is not yet reaped.
struct Ward {
    leader: Leader,
    mark: String,
    /// Whether its exit was told.
    told: bool,
}

impl Warden {
    fn new() -> io::Result<Self> {
        socket_type(io::stdin())?;
        // Fails only for the leader of a group, which is out of the terminal's reach anyway.
        let _ = setsid();
        set_child_subreaper(Some(getpid()))?;
        // Whoever stops Stayput stops us by the socket, later. These are caught and not ignored,
        // because what is ignored stays so in children.
        for signal in [SIGINT, SIGHUP, SIGTERM, SIGPIPE] {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        }
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, ringer)?;
        let (wards, frames, fds) = (HashMap::new(), Frames::default(), VecDeque::new());
        Ok(Self { wards, frames, fds, bell, parent: parent() })
    }

    /// Until the socket ends, or says what cannot be understood.
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
            let (heard, rung, orphaned) = (ready(0), ready(1), ready(2));
            if rung {
                while matches!((&self.bell).read(&mut [0; 64]), Ok(1..)) {}
                self.reap_orphans();
                if self.tell_exits().is_none() {
                    return;
                }
            }
            if orphaned || heard && self.hear().is_none() {
                return;
            }
        }
    }

    /// Reads what is there and does it. None if there will be no more.
    fn hear(&mut self) -> Option<()> {
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
        let ends = Ends([end()?, end()?, end()?]);
        match spawn(program, &mark, ends) {
            Ok(pid) => {
                let ward = Ward { leader: Leader::new(pid), mark, told: false };
                self.wards.insert(number, ward);
                say(&Answer::Started { number, pid: pid.as_raw_pid() })
            }
            Err(refused) => say(&Answer::Failed { number, refused }),
        }
    }

    fn signal(&mut self, number: u64, signal: i32) {
        if let (Some(ward), Some(signal)) =
            (self.wards.get_mut(&number), Signal::from_named_raw(signal))
        {
            ward.leader.signal(signal);
        }
    }

    fn reap(&mut self, number: u64) -> Option<()> {
        let Some(mut ward) = self.wards.remove(&number) else {
            return say(&Answer::Reaped { number, leftovers: 0 });
        };
        let tree = ward.leader.strike();
        let exited = leader::reaped(|| ward.leader.reap());
        if !ward.told {
            say(&Answer::Exited { number, exited })?;
        }
        self.reap_orphans();
        let mut claim = Claim::new(ward.leader.pid().as_raw_pid(), tree);
        if self.wards.is_empty() {
            // Nobody is left to whom it could belong, so all that is below us goes, marked or not.
            claim.add(proc::below(me()));
        }
        let mut claims = [claim];
        let ground = Ground::Orphans { of: me(), leaders: self.leaders() };
        let wanted = |mark: &str| (mark == ward.mark).then_some(0);
        clear(&ground, &mut claims, wanted, || self.reap_orphans());
        let leftovers = claims[0].leftovers().try_into().unwrap_or(u64::MAX);
        say(&Answer::Reaped { number, leftovers })
    }

    /// A leader that has exited stays a zombie until we are told to reap it, so that its group keeps
    /// its name.
    fn tell_exits(&mut self) -> Option<()> {
        for (number, ward) in self.wards.iter_mut().filter(|(_, ward)| !ward.told) {
            if let Some(exited) = ward.leader.peek() {
                ward.told = true;
                say(&Answer::Exited { number: *number, exited })?;
            }
        }
        Some(())
    }

    /// Those whose parents died are ours now, and nobody else will wait for them.
    fn reap_orphans(&self) {
        let leaders = self.leaders();
        for orphan in proc::children(me()).into_iter().filter(|pid| !leaders.contains(pid)) {
            if let Some(pid) = Pid::from_raw(orphan) {
                let _ = retry_on_intr(|| waitpid(Some(pid), WaitOptions::NOHANG));
            }
        }
    }

    fn leaders(&self) -> HashSet<i32> {
        self.wards.values().map(|ward| ward.leader.pid().as_raw_pid()).collect()
    }

    /// Ends all that is below us and what carries a mark of ours. Stays as long as there is anything.
    fn end_all(self) {
        for seen in proc::below(me()) {
            seen.signal(Signal::TERM);
        }
        for _ in 0..LOOKS {
            reap_all();
            if proc::below(me()).is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let mut pause = Duration::from_millis(1);
        loop {
            let below = proc::below(me());
            if below.is_empty() {
                break;
            }
            for seen in below {
                seen.signal(Signal::KILL);
            }
            thread::sleep(pause);
            pause = PAUSE.min(pause * 2);
            reap_all();
        }
        let marks: HashSet<String> = self.wards.into_values().map(|ward| ward.mark).collect();
        let wanted = |mark: &str| marks.contains(mark).then_some(0);
        clear(&Ground::Machine, &mut [Claim::default()], wanted, || {});
    }
}

fn me() -> i32 {
    getpid().as_raw_pid()
}

fn reap_all() {
    while matches!(retry_on_intr(|| wait(WaitOptions::NOHANG)), Ok(Some(_))) {}
}

/// The process whose children these are, if it is the one that started us.
fn parent() -> Option<OwnedFd> {
    let prefix = std::env::var(WARDEN).ok()?;
    let holder = Holder::of(&format!("{prefix}.0"))?;
    let parent = getppid().filter(|parent| parent.as_raw_pid() == holder.seen.pid)?;
    pidfd_open(parent, PidfdFlags::empty()).ok()
}

fn receive(bytes: &mut [u8], fds: &mut VecDeque<OwnedFd>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let slices = &mut [IoSliceMut::new(bytes)];
    let received = recvmsg(io::stdin(), slices, &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            fds.extend(came);
        }
    }
    Ok(received.bytes)
}

/// Blocks until all of it is sent. None if there is nobody who could hear it.
fn say(answer: &Answer) -> Option<()> {
    let frame = answer.encode();
    let mut rest = frame.as_slice();
    while !rest.is_empty() {
        let sent = retry_on_intr(|| send(io::stdin(), rest, SendFlags::NOSIGNAL)).ok()?;
        rest = rest.get(sent..)?;
    }
    Some(())
}
