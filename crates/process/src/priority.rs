//! Priority of threads.

/// Niceness of a thread with lowered priority: it gets about a tenth of the time of a thread that runs beside it.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Lowers the priority of the current thread for good. Does nothing on systems where only a process has a priority, nor
/// where that is forbidden.
pub fn lower_thread_priority() {
    // On Linux a priority belongs to a thread, and the process of number 0 is the calling thread.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICE);
}
