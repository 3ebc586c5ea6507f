//! The image, run with buildah as the pod of deploy/ runs it: by the image's user, with the rendered
//! arguments and configuration, the ServiceAccount's files where a kubelet mounts them, and a root file
//! system that is read-only.
//!
//! What no test here can show: what a kubelet or a container runtime adds, such as its seccomp profile. Under
//! buildah's isolation `chroot`, which needs no runtime, the container shares the network and the process ids of
//! this machine.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::cluster::process::{Folder, Process, Signal, free_port};
use crate::cluster::testbed::Topology;
use crate::cluster::throughline::get;
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::forms::{Applied, NAMESPACE, THREE, apply_form, create_remotes, start_clusters};
use crate::render::{Choice, FORMS, kustomize};
use crate::tools::{repo, without_cargo};

const TAG: &str = concat!("throughline:", env!("CARGO_PKG_VERSION"));
/// Where the ServiceAccount's files are in every pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Builds the image; returns the settings of the store that it is in.
fn build() -> PathBuf {
    let script = repo("tests/deploy/image/build");
    let mut command = Command::new(&script);
    without_cargo(&mut command);
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{} failed: {}", script.display(), output.status);
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

/// A command of buildah, on the store with the image. Each run of these tests builds it: cargo knows what is
/// new, and no test sees an older image.
fn buildah(words: &[&str]) -> Command {
    let mut command = Command::new("buildah");
    command.args(words);
    in_store(&mut command);
    command
}

fn in_store(command: &mut Command) {
    static STORE: OnceLock<PathBuf> = OnceLock::new();
    command.env("CONTAINERS_STORAGE_CONF", STORE.get_or_init(build));
}

/// Runs a command; returns exit code, standard output and standard error.
fn output(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let [said, complained] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), said, complained)
}

/// The standard output of a command that succeeds.
fn succeeds(command: Command) -> String {
    let what = format!("{command:?}");
    let (code, said, complained) = output(command);
    assert_eq!(code, Some(0), "{what}\n{said}{complained}");
    said
}

/// What the image says of itself.
fn inspect() -> Value {
    serde_json::from_str(&succeeds(buildah(&["inspect", "--type", "image", TAG]))).unwrap()
}

fn strings(list: &Value) -> Vec<String> {
    let text = |item: &Value| item.as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(text).collect()
}

/// throughline's container in a pod.
fn ours(pod: &Value) -> &Value {
    let containers = pod["containers"].as_array().unwrap();
    containers.iter().find(|container| container["name"] == "throughline").unwrap()
}

/// Files below a folder, without the folder's own path.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found
}

/// A container made from the image.
struct Container {
    id: String,
    /// Its root file system.
    root: PathBuf,
    /// The image's entry point.
    entry: Vec<String>,
    /// buildah's options: volumes and environment.
    options: Vec<String>,
    /// What is mounted.
    folder: Folder,
}

impl Container {
    fn new() -> Self {
        let id = succeeds(buildah(&["from", "--pull-never", TAG])).trim_end().to_owned();
        let root = PathBuf::from(succeeds(buildah(&["mount", &id])).trim_end());
        let entry = strings(&inspect()["OCIv1"]["config"]["Entrypoint"]);
        Self { id, root, entry, options: Vec::new(), folder: Folder::new("image") }
    }

    /// With all that a kubelet would mount into the pod.
    fn of_pod(applied: &Applied, api_server: &str, ca: &str, kubeconfig: &str) -> Self {
        let mut container = Self::new();
        let group = applied.pod["securityContext"]["fsGroup"].as_u64().unwrap();
        let group = u32::try_from(group).unwrap();
        for mount in ours(&applied.pod)["volumeMounts"].as_array().unwrap() {
            let volumes = applied.pod["volumes"].as_array().unwrap();
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            let path = mount["mountPath"].as_str().unwrap();
            if volume["configMap"].is_object() {
                container.mount(path, &[("config.yaml", &applied.config)], group);
            } else if volume["secret"].is_object() {
                container.mount(path, &[("config", kubeconfig)], group);
            } else {
                assert!(volume["emptyDir"].is_object(), "{volume}");
                container.mount(path, &[], group);
            }
        }
        let token = applied.token.as_str();
        container.mount(
            ACCOUNT,
            &[("token", token), ("ca.crt", ca), ("namespace", NAMESPACE)],
            group,
        );
        let (host, port) = api_server.strip_prefix("https://").unwrap().split_once(':').unwrap();
        for variable in
            [format!("KUBERNETES_SERVICE_HOST={host}"), format!("KUBERNETES_SERVICE_PORT={port}")]
        {
            container.options.extend(["--env".to_owned(), variable]);
        }
        container.prepare();
        container
    }

    /// Mounts a folder with these files, read-only; a writable one if there are none. Only the group may
    /// read them, as where a pod has an `fsGroup`.
    fn mount(&mut self, path: &str, files: &[(&str, &str)], group: u32) {
        let (folder, access, mode) = match files {
            [] => (self.outside(path), "rw", 0o2770),
            _ => (self.outside(path), "ro", 0o750),
        };
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            let file = folder.join(name);
            fs::write(&file, text).unwrap();
            allow(&file, group, 0o440);
        }
        allow(&folder, group, mode);
        self.options
            .extend(["--volume".to_owned(), format!("{}:{path}:{access}", folder.display())]);
        fs::create_dir_all(self.root.join(path.trim_start_matches('/'))).unwrap();
    }

    /// Where this machine has what is mounted there.
    fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/').replace('/', "-"))
    }

    /// Makes the places where buildah mounts something, which it can't once the root is read-only.
    fn prepare(&self) {
        for folder in ["dev", "etc", "proc", "run", "sys"] {
            fs::create_dir_all(self.root.join(folder)).unwrap();
        }
        for file in ["etc/hostname", "etc/hosts", "etc/resolv.conf"] {
            fs::write(self.root.join(file), "").unwrap();
        }
    }

    /// A command in the container, with a read-only root. buildah has no option for that, so it finds
    /// the root read-only already, in a mount namespace of its own. Only /run is writable, for root alone:
    /// buildah leaves a file there.
    fn command(&self, words: &[&str]) -> Command {
        const READ_ONLY: &str = r#"
            mount --bind "$1" "$1"
            mount -t tmpfs -o mode=755 tmpfs "$1/run"
            mount -o remount,bind,ro "$1"
            shift
            exec buildah run --isolation chroot "$@"
        "#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-euc", READ_ONLY, "sh"]).arg(&self.root);
        command.args(&self.options).args([&self.id, "--"]).args(words);
        in_store(&mut command);
        // So that nothing stays if it is killed.
        command.env("TMPDIR", self.folder.path());
        command
    }

    /// The entry point with these arguments.
    fn start(&self, arguments: &[&str]) -> Process {
        let words: Vec<_> =
            self.entry.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        Process::start("container", self.command(&words), self.folder.path())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("container.log")).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = output(buildah(&["rm", &self.id]));
    }
}

fn allow(path: &Path, group: u32, mode: u32) {
    chown(path, None, Some(group)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The process in a container whose command begins like this; `group` is its process group.
fn process_of(group: u32, entry: &str) -> Option<u32> {
    let is_it = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name in parentheses: state, parent, process group.
        let of = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(2)?.parse().ok());
        command.split(|byte| *byte == 0).next() == Some(entry.as_bytes()) && of == Some(group)
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(is_it)
}

#[test]
#[ignore = "needs root, buildah and kustomize: make deploy-test"]
fn the_image_is_what_the_manifests_expect() {
    let image = inspect();
    let config = &image["OCIv1"]["config"];
    for form in FORMS {
        let objects = kustomize(form, &Choice::plain());
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let ours = ours(&deployment["spec"]["template"]["spec"]);
        assert_eq!(ours["image"], TAG, "{form}");
        // The manifests give arguments alone.
        assert!(ours["command"].is_null(), "{form}: {}", ours["command"]);
        assert_eq!(ours["args"][0], config["Cmd"][0], "{form}");
        let held = &ours["securityContext"];
        let user = format!("{}:{}", held["runAsUser"], held["runAsGroup"]);
        assert_eq!(config["User"], user, "{form}");
        let port = format!("{}/tcp", ours["ports"][0]["containerPort"]);
        let exposed = config["ExposedPorts"].as_object().unwrap();
        assert_eq!(exposed.keys().collect::<Vec<_>>(), [&port], "{form}");
    }
    let container = Container::new();
    let all = ["LICENSE", "etc/ssl/certs/ca-certificates.crt", "throughline"];
    assert_eq!(files(&container.root), all.map(str::to_owned).into());

    container.prepare();
    // Found without its path, as `kubectl exec POD -- throughline …` has to.
    let said = succeeds(container.command(&["throughline", "version"]));
    let labels = &config["Labels"];
    let label = |name: &str| labels[format!("org.opencontainers.image.{name}")].as_str().unwrap();
    assert_eq!(said, format!("throughline {} (commit {})\n", label("version"), label("revision")));
    assert_eq!(label("version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(label("created"), image["OCIv1"]["created"]);
}

#[test]
#[ignore = "needs root and buildah: make deploy-test"]
fn the_same_source_makes_the_same_image() {
    let one = inspect()["FromImageID"].clone();
    build();
    assert!(one.is_string());
    assert_eq!(inspect()["FromImageID"], one);
}

/// standalone-hub, because it uses both: the pod's ServiceAccount, and a kubeconfig for remote clusters.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, buildah, API servers and kustomize: make deploy-test"]
async fn the_image_runs_as_the_pod_does() {
    let (testbed, fleet, remotes) = start_clusters(Topology::Three, &THREE).await;
    create_remotes(&testbed, &remotes).await;
    let hub = testbed.hub();
    let applied = apply_form("standalone-hub", &Choice::plain(), hub).await;
    let ca = fs::read_to_string(hub.server.ca()).unwrap();
    let kubeconfig = fs::read_to_string(&remotes).unwrap();
    let pod = Container::of_pod(&applied, &hub.server.url(), &ca, &kubeconfig);

    let arguments = strings(&ours(&applied.pod)["args"]);
    // The test's containers share the ports of this machine.
    let port = free_port();
    let address = format!("admin.address=127.0.0.1:{port}");
    let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    arguments.extend(["--set", &address]);
    let mut running = pod.start(&arguments);
    eventually("throughline is ready", SOON, async || {
        let (code, body) = get(([127, 0, 0, 1], port).into(), "/readyz").await?;
        ensure(code == 200, || format!("{code}: {body}\n{}", pod.log()))
    })
    .await;

    let process = process_of(running.pid(), &pod.entry[0]).expect("the container's process");
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!((line("Uid:"), line("Gid:")), (vec!["65532"; 4], vec!["65532"; 4]));
    assert_eq!(line("CapEff:"), ["0000000000000000"]);
    // The test is root, which no permission stops: the mount does.
    let refused =
        fs::write(Path::new(&format!("/proc/{process}/root")).join("file"), "").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);

    oracle::converges(&testbed).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;

    // What README.md does with `kubectl exec`. These clusters lack one thing: Envoy Gateway.
    let check =
        ["/throughline", "check", "--config", "/etc/throughline/config/config.yaml", "-o", "json"];
    let (code, said, complained) = output(pod.command(&check));
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {complained}"));
    let findings = report["findings"].as_array().unwrap();
    let not_passed: Vec<_> = findings.iter().filter(|f| f["level"] != "passed").collect();
    let cause = |finding: &&Value| finding["cause"].as_str().unwrap_or_default().to_owned();
    let causes: Vec<_> = not_passed.iter().map(cause).collect();
    assert_eq!((causes, code), (vec!["touch_ineffective".to_owned()], Some(1)), "{not_passed:#?}");
    let reached = |finding: &&Value| finding["check"] == "reachable";
    assert_eq!(findings.iter().filter(reached).count(), THREE.len(), "{report:#}");

    let log = succeeds(pod.command(&["throughline", "export"]));
    assert!(log.contains(r#""type":"mirror""#) && log.contains(r#""type":"touch""#), "{log}");
    fs::write(pod.outside("/var/log/throughline").join("exported.jsonl"), log).unwrap();
    let exported = "/var/log/throughline/exported.jsonl";
    succeeds(pod.command(&["throughline", "replay", "--mode", "verify", exported]));

    // To the program alone, as a kubelet does.
    let process = rustix::process::Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    rustix::process::kill_process(process, Signal::TERM).unwrap();
    let status = running.wait(SOON).await.expect("it ends");
    let log = pod.log();
    assert!(status.success() && !log.contains(" ERROR "), "{status}\n{log}");
}
