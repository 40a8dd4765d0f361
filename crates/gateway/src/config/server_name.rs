//! Name of a server that is started by a command: that of its package, not of the program that starts packages.

use std::path::Path;

use super::reserved_names;

/// Longest derived name.
const MAX_NAME_LEN: usize = 64;

/// File and package names that many servers have. The scope or folder around them says more.
const GENERIC: [&str; 14] = [
    "mcp",
    "server",
    "mcp-server",
    "index",
    "main",
    "__main__",
    "cli",
    "app",
    "dist",
    "build",
    "src",
    "lib",
    "bin",
    "run",
];

/// Options of `npx`, `uvx` and their like that take a value.
const PACKAGE_OPTIONS: [&str; 9] =
    ["--with", "--python", "-p", "--package", "--from", "--spec", "-c", "--call", "--index-url"];

/// Options that name the package itself, before the program in it.
const PACKAGE_NAMES: [&str; 4] = ["-p", "--package", "--from", "--spec"];

/// Options of `docker run` that take a value.
const CONTAINER_OPTIONS: [&str; 22] = [
    "-e",
    "--env",
    "--env-file",
    "-v",
    "--volume",
    "--mount",
    "--name",
    "-p",
    "--publish",
    "--network",
    "--net",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--entrypoint",
    "--platform",
    "-l",
    "--label",
    "--add-host",
    "-m",
    "--memory",
];

/// Returns whether `--server` accepts a name without a change.
pub(crate) fn is_valid_server_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let is_word = !name.is_empty() && name.len() <= MAX_NAME_LEN && name.bytes().all(is_word);
    is_word && !name.starts_with('-') && !reserved_names::is_reserved(name)
}

/// Derives the name of a server from its command.
pub(super) fn derive(command: &str, args: &[String]) -> String {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let name = words(command, &args).unwrap_or_else(|| file(command));
    let word = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '-' };
    let name: String = name.chars().map(word).take(MAX_NAME_LEN).collect();
    match name.trim_matches('-') {
        "" => "server".to_owned(),
        // Such as `mcp`, the program of the Python SDK.
        name if reserved_names::is_reserved(name) => format!("{name}-server"),
        name => name.to_owned(),
    }
}

/// Returns the name of the package, module, script or image that a known launcher starts.
fn words(command: &str, args: &[&str]) -> Option<String> {
    let launcher = Path::new(command).file_stem()?.to_str()?.to_ascii_lowercase();
    let rest = |words: usize| args.get(words..).unwrap_or_default();
    match (&*launcher, args.first().copied().unwrap_or_default()) {
        ("npx" | "bunx" | "uvx" | "pnpx", _) => package(args),
        ("npm" | "pnpm" | "yarn", "exec" | "dlx" | "x") | ("bun", "x") => package(rest(1)),
        ("pipx", "run") => package(rest(1)),
        ("uv", "tool") => package(rest(2)),
        ("uv", "run") => program(rest(1)),
        ("docker" | "podman" | "nerdctl", "run") => image(rest(1)),
        ("cmd", _) => program(args.iter().position(|arg| *arg == "/c").map(|at| rest(at + 1))?),
        ("env", _) => {
            program(rest(args.iter().position(|arg| !arg.starts_with('-') && !arg.contains('='))?))
        }
        ("deno", "run") => script(rest(1)),
        ("node" | "bun" | "tsx" | "ts-node" | "ruby", _) => script(args),
        (launcher, _) if launcher == "py" || launcher.starts_with("python") => {
            match args.iter().position(|arg| *arg == "-m") {
                Some(at) => rest(at + 1).first().map(|module| module_name(module)),
                None => script(args),
            }
        }
        _ => None,
    }
}

/// Returns the name of a command with its arguments.
fn program(words: &[&str]) -> Option<String> {
    let words = &words[words.iter().position(|word| !word.starts_with('-'))?..];
    let (command, args) = words.split_first()?;
    self::words(command, args).or_else(|| Some(file(command)))
}

/// Returns the name of the package in the arguments of a launcher.
fn package(args: &[&str]) -> Option<String> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.split_once('=') {
            Some((option, value)) if PACKAGE_NAMES.contains(&option) => {
                return Some(package_name(value));
            }
            None if PACKAGE_NAMES.contains(arg) && *arg != "-p" => {
                return args.next().map(|value| package_name(value));
            }
            None if PACKAGE_OPTIONS.contains(arg) => {
                args.next();
            }
            _ if arg.starts_with('-') => {}
            _ => return Some(package_name(arg)),
        }
    }
    None
}

/// Returns a package name without scope, version and extras. A generic name gives way to its scope.
fn package_name(package: &str) -> String {
    // A repository, such as `git+https://host/owner/name.git` or `github:owner/name`.
    if package.contains("://") || package.starts_with("github:") {
        let path = package.trim_end_matches('/').trim_end_matches(".git");
        return plain(path.rsplit(['/', ':']).next().unwrap_or(path)).to_owned();
    }
    if package.starts_with(['.', '/']) {
        return file(package);
    }
    let (scope, name) = match package.strip_prefix('@').and_then(|it| it.split_once('/')) {
        Some((scope, name)) => (scope, name),
        None => ("", package),
    };
    let name = name.split(['@', '=', '<', '>', '~', '!', '[', ';']).next().unwrap_or(name);
    match GENERIC.contains(&name) && !scope.is_empty() {
        true => scope.to_owned(),
        false => plain(name).to_owned(),
    }
}

/// Returns the name of a Python module.
fn module_name(module: &str) -> String {
    let mut parts: Vec<&str> = module.split('.').collect();
    while parts.len() > 1 && parts.last().is_some_and(|part| GENERIC.contains(part)) {
        parts.pop();
    }
    plain(&parts.last().copied().unwrap_or(module).replace('_', "-")).to_owned()
}

/// Returns the name of the first argument that is no option.
fn script(args: &[&str]) -> Option<String> {
    args.iter().find(|arg| !arg.starts_with('-')).map(|path| file(path))
}

/// Returns the name of a file. A generic name gives way to the next folder that is not.
fn file(path: &str) -> String {
    let parts = Path::new(path).ancestors().filter_map(|it| it.file_stem()?.to_str());
    let mut parts = parts.filter(|part| !part.starts_with('.'));
    let first = parts.clone().next().unwrap_or_default();
    plain(parts.find(|part| !GENERIC.contains(part)).unwrap_or(first)).to_owned()
}

/// Returns the name of the image in the arguments of `docker run`.
fn image(args: &[&str]) -> Option<String> {
    let mut args = args.iter();
    let image = loop {
        let arg = args.next()?;
        if CONTAINER_OPTIONS.contains(arg) {
            args.next();
        } else if !arg.starts_with('-') {
            break arg;
        }
    };
    let image = image.split('@').next().unwrap_or(image);
    let mut parts = image.rsplit('/').map(|part| part.split(':').next().unwrap_or(part));
    let first = parts.clone().next().unwrap_or_default();
    Some(plain(parts.find(|part| !GENERIC.contains(part)).unwrap_or(first)).to_owned())
}

/// Removes the words that say no more than "MCP server".
fn plain(name: &str) -> &str {
    let stripped = ["mcp-server-", "server-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    let name = stripped.filter(|it| !it.is_empty()).unwrap_or(name);
    let suffixes = ["-mcp-server", "-server-mcp", "-mcp"];
    let stripped = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    stripped.filter(|it| !it.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server behind `--` is called as its package, not as the launcher.
    #[test]
    fn name_comes_from_the_package() {
        for (line, name) in [
            ("npx -y @playwright/mcp@latest --isolated", "playwright"),
            ("npx @modelcontextprotocol/server-filesystem /tmp", "filesystem"),
            ("/usr/bin/npx --yes @upstash/context7-mcp@1.0.0", "context7"),
            ("npx --package=@playwright/mcp mcp-server-playwright", "playwright"),
            ("npx -y mcp-remote https://example.com/mcp", "mcp-remote"),
            ("npm exec -- mcp-server-time", "time"),
            ("pnpm dlx server-memory", "memory"),
            ("cmd /c npx -y @playwright/mcp", "playwright"),
            ("uvx mcp-server-git==0.6.2 --repository .", "git"),
            ("uvx --python 3.12 mcp-server-fetch[all]", "fetch"),
            ("uvx --from git+https://github.com/oraios/serena serena start", "serena"),
            ("uv run mcp-server-sqlite", "sqlite"),
            ("uv run --quiet python -m weather.server", "weather"),
            ("pipx run mcp-server-time", "time"),
            ("python3 -m mcp_server_time --local", "time"),
            ("python -m notes", "notes"),
            ("python3.11 /srv/notes/server.py", "notes"),
            ("node /opt/browser/dist/index.js", "browser"),
            ("node --enable-source-maps ./weather.mjs", "weather"),
            ("deno run -A /srv/tides.ts", "tides"),
            ("docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/github-mcp-server:1", "github"),
            ("docker run --rm -i mcp/fetch", "fetch"),
            ("docker run -i example/mcp-server@sha256:0a", "example"),
            ("env A=b npx -y @playwright/mcp", "playwright"),
            ("/opt/tools/my.tool.sh", "my-tool"),
            ("/srv/notes/bin/server", "notes"),
            ("./server", "server"),
            ("mcp run x.py", "mcp-server"),
            ("npx", "npx"),
            ("npx @mcp/mcp", "mcp-server"),
            ("", "server"),
        ] {
            let mut words = line.split(' ').map(str::to_owned);
            let command = words.next().unwrap();
            assert_eq!(derive(&command, &words.collect::<Vec<_>>()), name, "{line}");
        }
    }
}
