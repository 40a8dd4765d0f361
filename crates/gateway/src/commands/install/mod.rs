//! `stayput install`: puts Stayput in front of the servers in a client's own file, and removes it again.

mod diff;
mod file;

use std::{
    error::Error,
    io::{self, BufRead as _, Write},
    path::Path,
};

use stayput_config::{
    Client, ConfigError, Environment, FileEdit, ServerChange, unwrap_servers, wrap_servers,
};

use self::file::ClientFile;
use crate::{commands::cli::Install, config::server_name};

/// Change of a file that is not written yet.
struct Plan {
    edit: FileEdit,
    /// Content of the backup; `None` to remove it.
    backup: Option<String>,
}

/// Changes the file of the client, after a question.
///
/// # Errors
/// If the file cannot be read, parsed or written, or the answer to the question is not yes.
pub(crate) fn run(args: &Install) -> Result<(), Box<dyn Error>> {
    let environment = Environment::from_process();
    let client = args.client.ok_or_else(|| client_is_missing(&environment))?;
    let path = match &args.file {
        Some(file) => file.clone(),
        None => client
            .file(&environment)
            .ok_or("the home folder is not known: set HOME, or name the file with --file")?,
    };
    let file = ClientFile::open(&path)?;
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or("the path of this program is not UTF-8")?;
    let plan = match args.undo {
        true => plan_undo(&file, program)?,
        false => plan_install(&file, program)?,
    };
    let mut output = io::stdout().lock();
    report(&mut output, &path, &plan.edit, args.undo)?;
    if plan.edit.text == file.text {
        return Ok(writeln!(output, "\nThere is nothing to change.")?);
    }
    write!(output, "\n{}", diff::between(&file.text, &plan.edit.text))?;
    if args.dry_run {
        return Ok(writeln!(output, "\nNothing was written, because of --dry-run.")?);
    }
    if !args.yes && !confirm(&mut output)? {
        return Err("nothing was written; answer `y` to write, or use --yes".into());
    }
    file.write(&plan.edit.text, plan.backup.as_deref())?;
    let name = client.name();
    if args.undo {
        writeln!(output, "\nWritten. Start {name} again, or let it load its servers anew.")?;
        return Ok(());
    }
    writeln!(
        output,
        "\nWritten; the file before is {}.\nStart {name} again, or let it load its servers anew. \
         `stayput install {name} --undo` takes it back.\n\
         Each chat that has a session has a process of its own now. Whether two of them work at once, and what to \
         add if not, says:\n    stayput check --config {}",
        file.backup().display(),
        path.display()
    )?;
    Ok(())
}

/// Error without a client: lists all clients, and which of them have a file here.
fn client_is_missing(environment: &Environment) -> String {
    let names =
        |clients: Vec<Client>| clients.into_iter().map(Client::name).collect::<Vec<_>>().join(", ");
    let has_file = |client: &Client| client.file(environment).is_some_and(|file| file.exists());
    let here = names(Client::ALL.into_iter().filter(has_file).collect());
    let all = names(Client::ALL.to_vec());
    let here = if here.is_empty() {
        "none of them has a file here".to_owned()
    } else {
        format!("with a file here: {here}")
    };
    format!("name the client, as in `stayput install cursor`: {all}; {here}")
}

/// Plans to put Stayput in front. The backup is the file without Stayput: as it is, or as it would be after an undo.
fn plan_install(file: &ClientFile, program: &str) -> Result<Plan, Box<dyn Error>> {
    let edit = wrap_servers(&file.text, &file.path, program, server_name::is_valid_server_name)?;
    let known = file.read_backup();
    let backup = match known.filter(|_| edit.names(ServerChange::Unchanged).next().is_some()) {
        Some(known) => remove(file, &own(&known, file, program))?.text,
        None => file.text.clone(),
    };
    Ok(Plan { edit, backup: Some(backup) })
}

/// Plans to remove Stayput. If the client has not changed its file since, the backup is restored byte for byte.
fn plan_undo(file: &ClientFile, program: &str) -> Result<Plan, Box<dyn Error>> {
    let backup = file.read_backup();
    let keep = backup.as_deref().map(|backup| own(backup, file, program)).unwrap_or_default();
    let mut edit = remove(file, &keep)?;
    if let Some(backup) = backup
        && wrap_servers(&backup, &file.path, program, server_name::is_valid_server_name)
            .is_ok_and(|wrapped| wrapped.text == file.text)
    {
        edit.text = backup;
    }
    Ok(Plan { edit, backup: None })
}

/// Removes Stayput from all servers but `keep`.
fn remove(file: &ClientFile, keep: &[String]) -> Result<FileEdit, ConfigError> {
    let keep: Vec<&str> = keep.iter().map(String::as_str).collect();
    unwrap_servers(&file.text, &file.path, &keep)
}

/// Returns the servers that had Stayput in front before the install: the user wrote that, so that it stays.
fn own(backup: &str, file: &ClientFile, program: &str) -> Vec<String> {
    let edit = wrap_servers(backup, &file.path, program, server_name::is_valid_server_name).ok();
    let names = edit.iter().flat_map(|edit| edit.names(ServerChange::Unchanged));
    names.map(str::to_owned).collect()
}

fn report(output: &mut impl Write, path: &Path, edit: &FileEdit, undo: bool) -> io::Result<()> {
    writeln!(output, "{}", path.display())?;
    if edit.servers.is_empty() {
        writeln!(output, "  It has no servers.")?;
    }
    for server in &edit.servers {
        let sentence = match (server.change, undo) {
            (ServerChange::Changed, false) => "is put behind Stayput",
            (ServerChange::Changed, true) => "is started without Stayput again",
            (ServerChange::Unchanged, false) => "is behind Stayput already",
            (ServerChange::Unchanged, true) => "is left as it is",
            (ServerChange::Remote, _) => {
                "is reached by a URL and left as it is; `stayput serve` can stand in front of it"
            }
            (ServerChange::Unreadable, _) => "has no command that can be read; it is left as it is",
        };
        writeln!(output, "  {}: {sentence}", server.name)?;
    }
    Ok(())
}

/// Asks whether to write. The end of the input is a no.
fn confirm(output: &mut impl Write) -> io::Result<bool> {
    write!(output, "\nWrite this? [y/N] ")?;
    output.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
