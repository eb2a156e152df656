//! `thalweg dev --nodes 3`: several nodes on this machine, with a bucket in a folder, to try out.

use anyhow::{Context, bail};
use std::ffi::{OsStr, OsString};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thalweg_host::config::Config;

/// How long the nodes may take until they serve.
const START_WITHIN: Duration = Duration::from_secs(60);
/// How long they may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(25);
/// Flags that each node gets with a value of its own.
const OWN: [&str; 6] = ["--nodes", "--listen", "--data", "--node", "--advertise", "--ready-file"];

/// The variable that tells a node which process has started it. It has none of the names of settings.
const PARENT: &str = "DEV_NODE_OF_PROCESS";

/// In a node that [`run`] has started: it ends when that process does.
pub(crate) fn end_with_parent() {
    let Some(parent) = std::env::var(PARENT).ok().and_then(|text| text.parse::<i32>().ok()) else { return };
    let asked = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    let is_gone = rustix::process::getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent);
    if asked.is_err() || is_gone {
        tracing::warn!("the process that has started this node may end without it");
    }
}

struct Started {
    name: String,
    address: SocketAddr,
    process: Child,
    /// How it was started, to be typed again.
    command: String,
    has_ended: bool,
}

/// Starts the nodes, and waits until they are asked to stop, or have all ended.
pub(crate) fn run(count: u64, config: &Config) -> anyhow::Result<()> {
    if !(1..=9).contains(&count) {
        bail!("--nodes {count} must be from 1 to 9");
    }
    let mut stop = crate::shutdown::Stop::install()?;
    let data = std::path::absolute(&config.data)?;
    std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let store = match &config.store.0 {
        Some(_) => None,
        None => Some(format!("file://{}", data.join("bucket").display())),
    };
    if data.join("FORMAT").exists() {
        bail!("{} is the data folder of one server: name another folder with --data", data.display());
    }
    let addresses = addresses(count, config)?;
    let mut nodes = Vec::new();
    let mut started = Ok(());
    for (number, address) in (1..).zip(addresses) {
        match start(number, address, &data, store.as_deref()) {
            Ok(node) => nodes.push(node),
            Err(error) => {
                started = Err(error);
                break;
            }
        }
    }
    let result = started.and_then(|()| wait_until_ready(&mut nodes, &data, &mut stop)).and_then(|is_ready| {
        if is_ready {
            announce(&nodes, config, &data)?;
            watch(&mut nodes, &mut stop);
        }
        Ok(())
    });
    end(&mut nodes, &mut stop);
    for node in &nodes {
        let _ = std::fs::remove_file(data.join(format!("{}.pid", node.name)));
    }
    if let Some(path) = config.ready_file() {
        let _ = std::fs::remove_file(path);
    }
    result
}

/// Free addresses of the settings' host: its port for the first node, and those after it for the others.
fn addresses(count: u64, config: &Config) -> anyhow::Result<Vec<SocketAddr>> {
    let first = config.listen.0;
    let mut held = Vec::new();
    for number in 0..count {
        let mut address = first;
        if first.port() > 0 {
            let port = u16::try_from(u64::from(first.port()) + number);
            address.set_port(port.with_context(|| format!("there are no {count} ports from {} on", first.port()))?);
        }
        let listener = TcpListener::bind(address).with_context(|| {
            format!("{address} cannot be used: {count} nodes take so many ports from --listen {first} on; name others")
        })?;
        held.push(listener);
    }
    Ok(held.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?)
}

fn start(number: u64, address: SocketAddr, data: &Path, store: Option<&str>) -> anyhow::Result<Started> {
    let name = format!("node-{number}");
    let folder = data.join(&name);
    let ready = data.join(format!("{name}.ready"));
    let _ = std::fs::remove_file(&ready);
    let mut command = Command::new(std::env::current_exe().context("where this program is")?);
    command.args(inherited()).args(["--listen", &address.to_string(), "--node", &name]);
    command.arg("--data").arg(&folder).arg("--ready-file").arg(&ready);
    if let Some(store) = store {
        command.args(["--store", store]);
    }
    let typed =
        std::iter::once(OsStr::new("thalweg")).chain(command.get_args()).map(quoted).collect::<Vec<_>>().join(" ");
    let mut log = std::fs::OpenOptions::new();
    log.write(true).create(true).truncate(true).mode(0o600);
    let log = log.open(data.join(format!("{name}.log")))?;
    // A group of its own: Ctrl-C in the terminal is for this process, which then stops the nodes.
    command.process_group(0).env(PARENT, std::process::id().to_string());
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    let process = process.with_context(|| format!("cannot start {name}"))?;
    std::fs::write(data.join(format!("{name}.pid")), format!("{}\n", process.id()))?;
    Ok(Started { name, address, process, command: typed, has_ended: false })
}

/// An argument as a shell takes it.
fn quoted(arg: &OsStr) -> String {
    let text = arg.to_string_lossy();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// The arguments of this process for a node: `dev`, and every flag that is not each node's own.
fn inherited() -> Vec<OsString> {
    let mut kept = vec![OsString::from("dev")];
    let mut given = std::env::args_os().skip(1);
    let mut has_command = false;
    while let Some(arg) = given.next() {
        if !has_command && arg == "dev" {
            has_command = true;
            continue;
        }
        let text = arg.to_string_lossy();
        let is_own = OWN.iter().any(|own| text == *own || text.starts_with(&format!("{own}=")));
        if is_own {
            if !text.contains('=') {
                given.next();
            }
            continue;
        }
        kept.push(arg);
    }
    kept
}

/// Whether they are; `false` if they are to stop before.
fn wait_until_ready(nodes: &mut [Started], data: &Path, stop: &mut crate::shutdown::Stop) -> anyhow::Result<bool> {
    let until = Instant::now() + START_WITHIN;
    for node in nodes {
        let ready = data.join(format!("{}.ready", node.name));
        while !ready.exists() {
            if stop.is_asked() {
                return Ok(false);
            }
            if node.process.try_wait()?.is_some() || Instant::now() >= until {
                node.has_ended = node.process.try_wait()?.is_some();
                let log = std::fs::read_to_string(data.join(format!("{}.log", node.name))).unwrap_or_default();
                bail!("{} does not serve: {}", node.name, log.lines().last().unwrap_or("it says nothing"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(true)
}

fn announce(nodes: &[Started], config: &Config, data: &Path) -> anyhow::Result<()> {
    let mut banner = format!("thalweg {} runs {} nodes that share a bucket\n", env!("CARGO_PKG_VERSION"), nodes.len());
    for node in nodes {
        banner += &format!("  {}      http://{}  pid {}\n", node.name, node.address, node.process.id());
    }
    banner += &format!("  data        {}: a bucket, caches, logs and pids of the nodes\n", data.display());
    let at = |number: usize| nodes.get(number % nodes.len()).map(|node| format!("http://{}", node.address));
    let [first, second, third] = [0, 1, 2].map(|number| at(number).unwrap_or_default());
    banner += &format!("  try         curl -X PUT {first}/v1/stream/hello -d 'hello' -H 'content-type: text/plain'\n");
    banner += &format!("              curl '{second}/v1/stream/hello?offset=-1'\n");
    banner += &format!("              curl -N '{third}/v1/stream/hello?offset=-1&live=sse'\n");
    banner += &format!("              thalweg node ls --server {first}\n");
    banner += "              kill -9 PID of one node, and go on with the others\n";
    banner += "  stop        Ctrl-C\n";
    crate::logs::print(&banner);
    if let Some(path) = config.ready_file() {
        let addresses: String = nodes.iter().map(|node| format!("{}\n", node.address)).collect();
        crate::announce::write_whole(path, &addresses).context("cannot write the ready file")?;
    }
    Ok(())
}

/// Waits for a stop signal, or until all nodes have ended; says when one does, and how to start it again.
fn watch(nodes: &mut [Started], stop: &mut crate::shutdown::Stop) {
    while !stop.is_asked() {
        for node in nodes.iter_mut().filter(|node| !node.has_ended) {
            if let Ok(Some(status)) = node.process.try_wait() {
                node.has_ended = true;
                crate::logs::print(&format!(
                    "{} has ended ({status}): the others take over; to start it again, with the same variables:\n  {}\n",
                    node.name, node.command
                ));
            }
        }
        if nodes.iter().all(|node| node.has_ended) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Stops the nodes: all of them at once, so that none takes over from another one. A second stop signal ends them.
fn end(nodes: &mut [Started], stop: &mut crate::shutdown::Stop) {
    for node in nodes.iter_mut().filter(|node| !node.has_ended) {
        if let Some(pid) = rustix::process::Pid::from_raw(node.process.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
    let until = Instant::now() + STOP_WITHIN;
    let mut is_late = false;
    for node in nodes.iter_mut().filter(|node| !node.has_ended) {
        while node.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            is_late |= Instant::now() >= until || stop.is_asked();
            if is_late {
                let _ = node.process.kill();
                let _ = node.process.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The settings' keys must name every flag that is each node's own, or two nodes would share one.
#[cfg(test)]
#[test]
fn flags_of_each_node_are_flags() {
    use thalweg_host::config::Settings;
    let known: Vec<String> =
        Settings::ALL.iter().map(|setting| format!("--{}", setting.key.replace('_', "-"))).collect();
    assert!(OWN.iter().filter(|own| **own != "--nodes").all(|own| known.contains(&(*own).to_owned())));
}
