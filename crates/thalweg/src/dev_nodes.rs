//! `thalweg dev --nodes 3`: several nodes on this machine, with a bucket in a folder, to try out.

use anyhow::{Context, bail};
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thalweg_host::config::Config;

/// How long the nodes may take until they serve.
const START_WITHIN: Duration = Duration::from_secs(60);
/// How long they may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(25);
/// Flags that each node gets with a value of its own.
const OWN: [&str; 7] = ["--nodes", "--listen", "--data", "--store", "--node", "--advertise", "--ready-file"];

struct Started {
    name: String,
    address: SocketAddr,
    process: Child,
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
    let mut nodes = Vec::new();
    for number in 1..=count {
        nodes.push(start(number, config, &data, store.as_deref())?);
    }
    let result = wait_until_ready(&mut nodes, &data).and_then(|()| {
        announce(&nodes, config, &data)?;
        watch(&mut nodes, &mut stop);
        Ok(())
    });
    end(&mut nodes);
    if let Some(path) = config.ready_file() {
        let _ = std::fs::remove_file(path);
    }
    result
}

/// An address of the settings' host: its port for the first node, and those after it for the others.
fn address(number: u64, config: &Config) -> anyhow::Result<SocketAddr> {
    let mut address = config.listen.0;
    match address.port() {
        0 => address = TcpListener::bind(address)?.local_addr()?,
        first => {
            let port = u16::try_from(u64::from(first) + number - 1).context("there are not so many ports")?;
            address.set_port(port);
        }
    }
    Ok(address)
}

fn start(number: u64, config: &Config, data: &Path, store: Option<&str>) -> anyhow::Result<Started> {
    let name = format!("node-{number}");
    let address = address(number, config)?;
    let folder = data.join(&name);
    let ready = data.join(format!("{name}.ready"));
    let _ = std::fs::remove_file(&ready);
    let mut command = Command::new(std::env::current_exe().context("where this program is")?);
    command.args(inherited()).args(["--listen", &address.to_string(), "--node", &name]);
    command.arg("--data").arg(&folder).arg("--ready-file").arg(&ready);
    if let Some(store) = store {
        command.args(["--store", store]);
    }
    let log = std::fs::File::create(data.join(format!("{name}.log")))?;
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    let process = process.with_context(|| format!("cannot start {name}"))?;
    Ok(Started { name, address, process, has_ended: false })
}

/// The arguments of this process for a node: `dev`, and every flag that is not each node's own.
fn inherited() -> Vec<OsString> {
    let mut kept = vec![OsString::from("dev")];
    let mut given = std::env::args_os().skip(1).filter(|arg| arg != "dev");
    while let Some(arg) = given.next() {
        let text = arg.to_string_lossy();
        let is_store = text.starts_with("--store");
        let is_own = OWN.iter().any(|own| text == *own || text.starts_with(&format!("{own}=")));
        if is_own && !is_store {
            if !text.contains('=') {
                given.next();
            }
            continue;
        }
        kept.push(arg);
    }
    kept
}

fn wait_until_ready(nodes: &mut [Started], data: &Path) -> anyhow::Result<()> {
    let until = Instant::now() + START_WITHIN;
    for node in nodes {
        let ready = data.join(format!("{}.ready", node.name));
        while !ready.exists() {
            if node.process.try_wait()?.is_some() || Instant::now() >= until {
                node.has_ended = node.process.try_wait()?.is_some();
                let log = std::fs::read_to_string(data.join(format!("{}.log", node.name))).unwrap_or_default();
                bail!("{} does not serve: {}", node.name, log.lines().last().unwrap_or("it says nothing"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

fn announce(nodes: &[Started], config: &Config, data: &Path) -> anyhow::Result<()> {
    let mut banner = format!("thalweg {} runs {} nodes that share a bucket\n", env!("CARGO_PKG_VERSION"), nodes.len());
    for node in nodes {
        banner += &format!("  {}      http://{}  pid {}\n", node.name, node.address, node.process.id());
    }
    banner += &format!("  data        {}, with the logs of the nodes\n", data.display());
    let first = nodes.first().map(|node| node.address.to_string()).unwrap_or_default();
    banner += &format!("  try         thalweg node ls --server http://{first}\n");
    banner += "              kill -9 PID of one of them, and go on with another one\n";
    crate::logs::print(&banner);
    if let Some(path) = config.ready_file() {
        let addresses: String = nodes.iter().map(|node| format!("{}\n", node.address)).collect();
        crate::announce::write_whole(path, &addresses).context("cannot write the ready file")?;
    }
    Ok(())
}

/// Waits for a stop signal, or until all nodes have ended; says when one does.
fn watch(nodes: &mut [Started], stop: &mut crate::shutdown::Stop) {
    while !stop.is_asked() {
        for node in nodes.iter_mut().filter(|node| !node.has_ended) {
            if let Ok(Some(status)) = node.process.try_wait() {
                node.has_ended = true;
                crate::logs::print(&format!("{} has ended ({status}): the others take over\n", node.name));
            }
        }
        if nodes.iter().all(|node| node.has_ended) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Stops the nodes: all of them at once, so that none takes over from another one.
fn end(nodes: &mut [Started]) {
    for node in nodes.iter_mut().filter(|node| !node.has_ended) {
        if let Some(pid) = rustix::process::Pid::from_raw(node.process.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
    let until = Instant::now() + STOP_WITHIN;
    for node in nodes.iter_mut().filter(|node| !node.has_ended) {
        while node.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() >= until {
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
