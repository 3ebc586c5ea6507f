//! The image, run with buildah as the pod of deploy/ runs it: by the image's user, with the rendered
//! arguments and configuration, the ServiceAccount's files where a kubelet mounts them, and a root file
//! system that is read-only.
//!
//! What no test here can show: what a kubelet or a container runtime adds, such as its seccomp profile. Under
//! buildah's isolation `chroot`, which needs no runtime, the container shares the network and the process ids of
//! this machine.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Pid, kill_process};
use serde_json::Value;

use crate::cluster::apiserver::ApiServer;
use crate::cluster::process::{Folder, Process, Signal, free_port};
use crate::cluster::testbed::Topology;
use crate::cluster::throughline::get;
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::forms::{Applied, NAMESPACE, THREE, apply_form, create_remotes, start_clusters};
use crate::render::{Choice, FORMS, kustomize, workload};
use crate::tools::{built_by, output, succeeds};

const TAG: &str = concat!("throughline:", env!("CARGO_PKG_VERSION"));
/// Where the ServiceAccount's files are in every pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Builds the image, and prints the settings of the store that it is in.
const BUILD: &str = "tests/deploy/image/build";

/// On the store with the image. Each run of these tests builds it: cargo knows what is new, and no test sees
/// an older image.
fn in_store(program: &str) -> Command {
    static STORE: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(program);
    command.env("CONTAINERS_STORAGE_CONF", STORE.get_or_init(|| built_by(BUILD)));
    command
}

fn buildah(words: &[&str]) -> String {
    succeeds(in_store("buildah").args(words)).trim_end().to_owned()
}

/// What the image says of itself.
fn inspect() -> Value {
    serde_json::from_str(&buildah(&["inspect", "--type", "image", TAG])).unwrap()
}

/// throughline's container in a pod.
fn ours(pod: &Value) -> &Value {
    let containers = pod["containers"].as_array().unwrap();
    containers.iter().find(|container| container["name"] == "throughline").unwrap()
}

/// A container made from the image.
struct Container {
    id: String,
    /// Its root file system.
    root: PathBuf,
    /// buildah's options: volumes and environment.
    options: Vec<String>,
    /// What is mounted.
    folder: Folder,
}

impl Container {
    fn new() -> Self {
        let id = buildah(&["from", "--pull-never", TAG]);
        let root = PathBuf::from(buildah(&["mount", &id]));
        Self { id, root, options: Vec::new(), folder: Folder::new("image") }
    }

    /// With all that a kubelet would mount into the pod.
    fn of_pod(applied: &Applied, server: &ApiServer, kubeconfig: &str) -> Self {
        let mut container = Self::new();
        let group = applied.pod["securityContext"]["fsGroup"].as_u64().unwrap();
        let group = u32::try_from(group).unwrap();
        for mount in ours(&applied.pod)["volumeMounts"].as_array().unwrap() {
            let volumes = applied.pod["volumes"].as_array().unwrap();
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            let files = if volume["configMap"].is_object() {
                vec![("config.yaml", applied.config.as_str())]
            } else if volume["secret"].is_object() {
                vec![("config", kubeconfig)]
            } else {
                assert!(volume["emptyDir"].is_object(), "{volume}");
                vec![]
            };
            container.mount(mount["mountPath"].as_str().unwrap(), &files, group);
        }
        let ca = fs::read_to_string(server.ca()).unwrap();
        let files = [("token", &*applied.token), ("ca.crt", &ca), ("namespace", NAMESPACE)];
        container.mount(ACCOUNT, &files, group);
        let url = server.url();
        let (host, port) = url.trim_start_matches("https://").split_once(':').unwrap();
        container.options.push(format!("--env=KUBERNETES_SERVICE_HOST={host}"));
        container.options.push(format!("--env=KUBERNETES_SERVICE_PORT={port}"));
        container
    }

    /// Mounts a folder with these files, read-only; a writable one if there are none. Only the group may
    /// read them, as where a pod has an `fsGroup`.
    fn mount(&mut self, path: &str, files: &[(&str, &str)], group: u32) {
        let folder = self.outside(path);
        let (access, mode) = if files.is_empty() { ("rw", 0o2770) } else { ("ro", 0o750) };
        fs::create_dir_all(&folder).unwrap();
        let allow = |path: &Path, mode| {
            chown(path, None, Some(group)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
            allow(&folder.join(name), 0o440);
        }
        allow(&folder, mode);
        self.options.push(format!("--volume={}:{path}:{access}", folder.display()));
        fs::create_dir_all(self.root.join(path.trim_start_matches('/'))).unwrap();
    }

    /// Where this machine has what is mounted there.
    fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/').replace('/', "-"))
    }

    /// A command in the container, with a read-only root. buildah has no option for that, so it finds
    /// the root read-only already, in a mount namespace of its own, with the places where it mounts something.
    /// Only /run is writable, for root alone: buildah leaves a file there.
    fn command(&self, words: &[&str]) -> Command {
        const READ_ONLY: &str = r#"
            (cd "$1" && mkdir -p dev etc proc run sys && touch etc/hostname etc/hosts etc/resolv.conf)
            mount --bind "$1" "$1"
            mount -t tmpfs -o mode=755 tmpfs "$1/run"
            mount -o remount,bind,ro "$1"
            shift
            exec buildah run --isolation chroot "$@"
        "#;
        let mut command = in_store("unshare");
        command.args(["--mount", "sh", "-euc", READ_ONLY, "sh"]).arg(&self.root);
        command.args(&self.options).args([&self.id, "--"]).args(words);
        // So that nothing stays if it is killed.
        command.env("TMPDIR", self.folder.path());
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("container.log")).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = in_store("buildah").args(["rm", &self.id]).output();
    }
}

#[test]
#[ignore = "needs root, buildah and kustomize: make deploy-test"]
fn the_image_is_what_the_manifests_expect() {
    let image = inspect();
    let config = &image["OCIv1"]["config"];
    for form in FORMS {
        let objects = kustomize(form, &Choice::plain());
        let ours = ours(&workload(&objects)["spec"]["template"]["spec"]);
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
    let mut find = Command::new("find");
    let files = succeeds(find.arg(&container.root).args(["!", "-type", "d", "-printf", "%P\n"]));
    let mut files: Vec<_> = files.lines().collect();
    files.sort_unstable();
    assert_eq!(files, ["LICENSE", "etc/ssl/certs/ca-certificates.crt", "throughline"]);

    // Found without its path, as `kubectl exec POD -- throughline …` has to.
    let said = succeeds(&mut container.command(&["throughline", "version"]));
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
    built_by(BUILD);
    assert!(one.is_string());
    assert_eq!(inspect()["FromImageID"], one);
}

/// standalone-hub, because it uses both: the pod's ServiceAccount, and a kubeconfig for remote clusters.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, buildah, API servers and kustomize: make deploy-test"]
async fn the_image_runs_as_the_pod_does() {
    let (testbed, fleet) = start_clusters(Topology::Three, &THREE).await;
    let remotes = fs::read_to_string(create_remotes(&testbed)).unwrap();
    let applied = apply_form("standalone-hub", &Choice::plain(), testbed.hub());
    let pod = Container::of_pod(&applied, &testbed.hub().server, &remotes);

    // The test's containers share the ports of this machine.
    let port = free_port();
    let address = format!("admin.address=127.0.0.1:{port}");
    let image = inspect();
    let words = [&image["OCIv1"]["config"]["Entrypoint"], &ours(&applied.pod)["args"]];
    let words = words.into_iter().flat_map(|words| words.as_array().unwrap());
    let words = words.map(|word| word.as_str().unwrap());
    let words: Vec<_> = words.chain(["--set", &address]).collect();
    let mut running = Process::start("container", pod.command(&words), pod.folder.path());
    eventually("throughline is ready", SOON, async || {
        let (code, body) = get(([127, 0, 0, 1], port).into(), "/readyz").await?;
        ensure(code == 200, || format!("{code}: {body}\n{}", pod.log()))
    })
    .await;

    let mut find = Command::new("pgrep");
    find.args(["--exact", "throughline", "--pgroup", &running.pid().to_string()]);
    let process = succeeds(&mut find).trim_end().to_owned();
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!((line("Uid:"), line("Gid:")), (vec!["65532"; 4], vec!["65532"; 4]));
    assert_eq!(line("CapEff:"), ["0000000000000000"]);
    // The test is root, which no permission stops: the mount does.
    let refused = fs::write(Path::new("/proc").join(&process).join("root/file"), "").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);

    oracle::converges(&testbed).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;

    // What README.md does with `kubectl exec`. These clusters lack one thing: Envoy Gateway.
    let check =
        ["/throughline", "check", "--config", "/etc/throughline/config/config.yaml", "-o", "json"];
    let (code, said, complained) = output(&mut pod.command(&check));
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {complained}"));
    let findings = report["findings"].as_array().unwrap();
    let not_passed: Vec<_> = findings.iter().filter(|f| f["level"] != "passed").collect();
    let causes: Vec<_> = not_passed.iter().map(|finding| finding["cause"].as_str()).collect();
    assert_eq!((causes, code), (vec![Some("touch_ineffective")], Some(1)), "{not_passed:#?}");
    let reached = |finding: &&Value| finding["check"] == "reachable";
    assert_eq!(findings.iter().filter(reached).count(), THREE.len(), "{report:#}");

    let log = succeeds(&mut pod.command(&["throughline", "export"]));
    assert!(log.contains(r#""type":"mirror""#) && log.contains(r#""type":"touch""#), "{log}");
    fs::write(pod.outside("/var/log/throughline").join("exported.jsonl"), log).unwrap();
    let exported = "/var/log/throughline/exported.jsonl";
    succeeds(&mut pod.command(&["throughline", "replay", "--mode", "verify", exported]));

    // To the program alone, as a kubelet does.
    kill_process(Pid::from_raw(process.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    let status = running.wait(SOON).await.expect("it ends");
    let log = pod.log();
    assert!(status.success() && !log.contains(" ERROR "), "{status}\n{log}");
}
