package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// likePublic is an image that is made as public images are, and what a renter of one node sees of it.
type likePublic struct {
	name   string
	files  map[string]string // executable
	data   map[string]string // not executable; "x/" is a folder. What is in home/jovyan is jovyan's
	layers int               // as many more, with one file each
	config v1.Config

	user    string   // the renter's
	command []string // the renter's
	release []string // lines after which the renter releases the cluster; none: its command ends

	state  client.State // Released if it is empty
	reason string       // "completed" if it is empty
	detail string       // part of it
	code   int          // of a command that ended before its cluster
	log    []string     // lines
	free   bool         // the command never ran: nothing is charged
}

// What the images' files do is what those do that they are named after, as far as a node can make a difference to it.
const (
	// s6Init refuses to run as another process than the first, as s6-overlay, runit and systemd do.
	s6Init = `#!/bin/sh -e
[ $$ = 1 ] || { echo "s6-overlay-suexec: fatal: can only run as pid 1"; exit 100; }
echo "s6-rc: info: services started"
"$@"
`
	// tini only warns, if it is no subreaper either.
	tini = `#!/bin/sh
[ $$ = 1 ] || [ "$TINI_SUBREAPER" ] || { echo "[WARN  tini ($$)] Tini is not running as PID 1"; exit 1; }
while [ "$1" != -- ]; do shift; done
shift
"$@"
`
	supervisord = `#!/bin/bash
trap 'echo "WARN received SIGTERM"; kill -TERM $(jobs -p); wait; echo "INFO all stopped"; exit 0' TERM
train web &
train queue &
wait
`
	// train saves a checkpoint when it is asked to end.
	train = `#!/bin/perl
$| = 1;
$SIG{$_} = sub { print "$ARGV[0] saved on SIG$_[0]\n"; exit 0 } for qw(TERM INT QUIT);
print "$ARGV[0] ready\n";
sleep 600 while 1;
`
	jupyterStart = `#!/bin/bash
set -e
cmd=("$@")
echo "Entered start.sh as $(id -u):$(id -g)"
echo "HOME=$HOME in $PWD"
touch "$HOME/.jupyter"
echo "Executing the command: ${cmd[*]}"
exec "${cmd[@]}"
`
	nvidiaEntrypoint = `#!/bin/bash
echo "== PyTorch =="
if [[ $# -eq 0 ]]; then
  exec "/bin/bash"
else
  exec "$@"
fi
`
	dockerEntrypoint = `#!/bin/sh
set -e
exec "$@"
`
	startSh = `#!/bin/bash
nohup sleep 600 &
train model
echo uploaded
`
	passwd = "root:x:0:0:root:/root:/bin/bash\njovyan:x:1000:100::/home/jovyan:/bin/bash\n"
)

var jupyter = likePublic{
	files: map[string]string{"bin/tini": tini, "bin/start.sh": jupyterStart,
		"bin/start-notebook.py": "#!/bin/sh\necho \"Jupyter Server is running\"\n"},
	data: map[string]string{"etc/passwd": passwd, "home/jovyan/": "", "home/jovyan/work/": ""},
	config: v1.Config{
		Entrypoint: []string{"tini", "-g", "--", "start.sh"}, Cmd: []string{"start-notebook.py"},
		User: "jovyan", WorkingDir: "/home/jovyan", Env: []string{"HOME=/home/jovyan", "NB_USER=jovyan"},
		ExposedPorts: map[string]struct{}{"8888/tcp": {}},
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD-SHELL", "touch work/checked; exit 1"}, Retries: 1,
			Interval: time.Millisecond},
	},
}

var likePublicImages = []likePublic{
	{
		name:   "NGC, many layers", // first, because Docker takes its time for each layer
		layers: manyLayers,
		files:  map[string]string{"opt/nvidia/nvidia_entrypoint.sh": nvidiaEntrypoint},
		data:   map[string]string{"data/model": "weights\n"},
		config: v1.Config{
			Entrypoint: []string{"/opt/nvidia/nvidia_entrypoint.sh"},
			Cmd:        []string{"sh", "-c", "pwd; cat /data/*; ls /layers | wc -l; env"},
			WorkingDir: "/workspace/new", Volumes: map[string]struct{}{"/data": {}},
			Env: []string{"NVIDIA_PYTORCH_VERSION=24.05", "PET_NNODES=1:4", "NCCL_DEBUG=INFO", "NVIDIA_VISIBLE_DEVICES=all",
				"NVIDIA_DRIVER_CAPABILITIES=all", "NVIDIA_IMEX_CHANNELS=0"},
		},
		log: []string{"== PyTorch ==", "/workspace/new", "weights", strconv.Itoa(manyLayers),
			"NVIDIA_PYTORCH_VERSION=24.05", "PET_NNODES=1:4",
			"NCCL_DEBUG=INFO", "NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_IMEX_CHANNELS=", "NNODES=1"},
	},
	{
		name:   "s6-overlay",
		files:  map[string]string{"init": s6Init},
		config: v1.Config{Entrypoint: []string{"/init"}, Cmd: []string{"echo", "served"}},
		log:    []string{"s6-rc: info: services started", "served"},
	},
	{
		name:   "s6-overlay behind a wrapper",
		files:  map[string]string{"init": s6Init, "start.sh": "#!/bin/bash\necho preparing\nexec /init \"$@\"\n"},
		config: v1.Config{Entrypoint: []string{"/start.sh"}, Cmd: []string{"sh", "-c", "exit 3"}},
		state:  client.Failed, reason: "workload_failed", detail: "exit code 3", code: 3,
		log: []string{"preparing", "s6-rc: info: services started"},
	},
	{
		name:   "s6-overlay as an entry point's command",
		files:  map[string]string{"init": s6Init, "bin/docker-entrypoint.sh": dockerEntrypoint},
		config: v1.Config{Entrypoint: []string{"docker-entrypoint.sh"}, Cmd: []string{"/init", "echo", "served"}},
		log:    []string{"s6-rc: info: services started", "served"},
	},
	{
		name:    "supervisord",
		files:   map[string]string{"bin/supervisord": supervisord, "bin/train": train},
		config:  v1.Config{Cmd: []string{"supervisord", "-n"}},
		release: []string{"web ready", "queue ready"},
		log: []string{"WARN received SIGTERM", "web saved on SIGTERM", "queue saved on SIGTERM",
			"INFO all stopped"},
	},
	{
		name: "jupyter", files: jupyter.files, data: jupyter.data, config: jupyter.config,
		log: []string{"Entered start.sh as 1000:100", "HOME=/home/jovyan in /home/jovyan",
			"Executing the command: start-notebook.py", "Jupyter Server is running"},
	},
	{
		name: "jupyter as root", files: jupyter.files, data: jupyter.data, config: jupyter.config,
		user: "root", command: []string{"sh", "-c", "echo as $(id -u), checks: $(ls work)"},
		log: []string{"Entered start.sh as 0:0", "HOME=/home/jovyan in /home/jovyan", "as 0, checks:"},
	},
	{
		name:   "USER that is not in /etc/passwd",
		config: v1.Config{User: "ghost", Cmd: []string{"id"}},
		state:  client.Failed, reason: "image_refused", detail: "ghost", free: true,
	},
	{
		name:  "STOPSIGNAL, direct",
		files: map[string]string{"docker-entrypoint.sh": dockerEntrypoint, "bin/train": train},
		config: v1.Config{Entrypoint: []string{"/docker-entrypoint.sh"}, Cmd: []string{"train", "model"},
			StopSignal: "SIGINT"},
		release: []string{"model ready"},
		log:     []string{"model saved on SIGINT"},
	},
	{
		name:    "STOPSIGNAL, behind a shell",
		files:   map[string]string{"bin/train": train},
		config:  v1.Config{StopSignal: "SIGINT"},
		command: []string{"bash", "-c", "echo prepared; train model; echo uploaded"},
		release: []string{"model ready"},
		log:     []string{"prepared", "model saved on SIGINT", "uploaded"},
	},
	{
		name:    "SIGTERM, behind a script",
		files:   map[string]string{"start.sh": startSh, "bin/train": train},
		config:  v1.Config{Cmd: []string{"/start.sh"}},
		release: []string{"model ready"},
		log:     []string{"model saved on SIGTERM"},
	},
	{
		name:  "entry point relative to WORKDIR, numeric USER that is not in /etc/passwd",
		files: map[string]string{"app/start.sh": "#!/bin/bash\necho \"$(id -u) in $PWD with $*\"\n"},
		config: v1.Config{Entrypoint: []string{"./start.sh"}, Cmd: []string{"--port", "80"}, WorkingDir: "/app",
			User: "1234"},
		log: []string{"1234 in /app with --port 80"},
	},
	{
		name:   "script without x",
		data:   map[string]string{"app/start.sh": "#!/bin/bash\necho started\n"},
		config: v1.Config{Entrypoint: []string{"./start.sh"}, WorkingDir: "/app"},
		state:  client.Failed, reason: "command_not_found", detail: "./start.sh: permission denied", free: true,
	},
	{
		name:   "script with CRLF",
		files:  map[string]string{"start.sh": "#!/bin/bash\r\necho started\r\n"},
		config: v1.Config{Entrypoint: []string{"/start.sh"}},
		state:  client.Failed, reason: "command_not_found", detail: "its lines end in CRLF", free: true,
	},
	{
		name:   "WORKDIR that is a file",
		config: v1.Config{Cmd: []string{"pwd"}, WorkingDir: "/etc/passwd"},
		state:  client.Failed, reason: "image_refused", detail: "/etc/passwd", free: true,
	},
}

// An image that is made as public ones are runs as it does under plain Docker, and one that cannot is refused with the
// cause, without a charge, and without blame for the host.
func TestImagesLikePublicOnes(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	usages := make([]client.Usage, len(likePublicImages))
	t.Run("rows", func(t *testing.T) {
		for i, row := range likePublicImages {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				usages[i] = row.check(t, r, row.push(t, p, i))
			})
		}
	})
	r.owes(t, usages...)
}

// check rents a node with the image, and compares what its renter sees.
func (row likePublic) check(t *testing.T, r *renter, image string) client.Usage {
	s := r.p.spec(1, 1, row.command...)
	s.Image, s.User = image, row.user
	c := r.rent(t, s)
	state, reason := client.Released, "completed"
	if row.release != nil {
		reason = "released_by_user"
		r.await(t, c, client.Running) // the log may be faster
		for _, line := range row.release {
			r.awaitLine(t, c, 0, line+"\n")
		}
		if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	if row.state != "" {
		state, reason = row.state, row.reason
	}
	got, err := r.Clusters.Wait(t.Context(), c.ID, state, nil)
	if err != nil || got.Reason != reason || !strings.Contains(got.Detail, row.detail) {
		t.Fatalf("%s %s: %s (%v)\n%s\n%s", got.State, got.Reason, got.Detail, err, r.timeline(t, c), r.logs(t, c, 0))
	}
	u := r.settle(t, c)
	if got, err = r.Clusters.Get(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	ended := !row.free && row.release == nil
	if code := got.Nodes[0].ExitCode; ended != (code != nil) || ended && *code != row.code {
		t.Errorf("%+v, want exit code %d", got.Nodes[0], row.code)
	}
	if row.free != (u.Cost == 0) || row.free != (got.RunningAt == nil) {
		t.Errorf("cost %s, running at %v", u.Cost, got.RunningAt)
	}
	if r.p.sql(t, "SELECT count(*) FROM start_hold WHERE cluster_id = $1 AND excused_by IS NOT NULL", c.ID) != 0 {
		t.Error("the host is to blame")
	}
	log := r.logs(t, c, 0)
	for _, line := range row.log {
		if !slices.Contains(strings.Split(log, "\n"), line) {
			t.Errorf("the log lacks %q:\n%s", line, log)
		}
	}
	return u
}

// push makes the image of the shell image, and puts it into the platform's registry.
func (row likePublic) push(t *testing.T, p *platform, i int) string {
	t.Helper()
	img, err := shellImage()
	if err != nil {
		t.Fatal(err)
	}
	layers := []v1.Layer{row.layer(t)}
	for n := range row.layers {
		more := likePublic{data: map[string]string{fmt.Sprintf("layers/%d", n): ""}}
		layers = append(layers, more.layer(t))
	}
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		t.Fatal(err)
	}
	config := row.config
	config.Env = append([]string{"PATH=/bin"}, config.Env...)
	if img, err = mutate.Config(img, config); err != nil {
		t.Fatal(err)
	}
	to, err := name.NewTag(fmt.Sprintf("%s/test/like-public:%d", p.registry(), i), name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, img); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// layer has the row's files.
func (row likePublic) layer(t *testing.T) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(path, text string, mode int64) {
		h := tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(text))}
		if strings.HasSuffix(path, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if strings.HasPrefix(path, "home/jovyan/") {
			h.Uid, h.Gid = 1000, 100
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(row.files)) {
		add(path, row.files[path], 0o755)
	}
	for _, path := range slices.Sorted(maps.Keys(row.data)) {
		add(path, row.data[path], 0o644)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return layer
}
