package container

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/guestenv"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// seccompProfile is what workloads may call: the Moby default (v0.2.3, Apache-2.0) without what needs a capability
// that no workload has, without 32-bit personalities, and with only the socket families that jobs use; NUMA policy is
// allowed, which training wants.
//
//go:embed seccomp.json
var seccompProfile string

// workCaps are all the capabilities of a workload. FSETID keeps setgid bits, which packages install, and with
// SYS_CHROOT an SSH server confines itself. NET_RAW must not be among them: it would let a workload forge packets into
// the bridge of other nodes.
var workCaps = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL", "NET_BIND_SERVICE",
	"SYS_CHROOT"}

const (
	mb          = 1 << 20
	guestMemory = 64 * mb
	minShm      = 64 * mb
	minShmMulti = 1 << 30 // NCCL between GPUs of one node breaks with Docker's 64 MB
	// Limit of a node's processes and threads: enough for data loaders with a thread for every core, and few enough that a
	// fork bomb leaves the host enough processes (a machine without systemd has 32,768 in all). A node with many cores
	// gets more, as far as the host's own limit allows.
	basePids, pidsPerCPU, maxPids = 2048, 1024, 16384
)

// pidsOf returns the limit of a node's processes and threads. most is how many the host can have in all; 0: not known.
func pidsOf(cpus float64, most int64) int64 {
	wanted := basePids + int64(cpus*pidsPerCPU)
	return min(wanted, max(maxPids, most/4))
}

// hostPids returns how many processes and threads the host can have; 0 if that is not known.
func hostPids() int64 {
	var most int64
	for _, path := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		b, err := os.ReadFile(path)
		n, err2 := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || err2 != nil {
			return 0
		}
		if most == 0 || n < most {
			most = n
		}
	}
	return most
}

// EnsureGuest creates and starts the container that holds a node's network namespace. An existing container of that
// name is adopted. One that has ended is returned as it is and never started again: it would have another namespace.
func (e *Engine) EnsureGuest(ctx context.Context, spec agentapi.LeaseSpec, files leasefiles.Layout) (Container, error) {
	image, err := e.ensureBaseImage(ctx)
	if err != nil {
		return Container{}, err
	}
	network, err := e.EnsureNetwork(ctx)
	if err != nil {
		return Container{}, err
	}
	pids := int64(64)
	mounts := append(e.mounts(files), mount.Mount{Type: mount.TypeBind, Source: files.Node, Target: guest.NodeDir},
		mount.Mount{Type: mount.TypeBind, Source: files.Guest, Target: guest.HoldDir})
	return e.ensure(ctx, spec.LeaseRef, Guest, client.ContainerCreateOptions{
		Config: &container.Config{
			Hostname:   leasefiles.NodeName(spec.Rank),
			Image:      image,
			Entrypoint: guest.HoldArgs(spec.LeaseRef),
			Env:        []string{"NVIDIA_VISIBLE_DEVICES=void"},
			WorkingDir: "/",
		},
		HostConfig: &container.HostConfig{
			NetworkMode:    container.NetworkMode(network),
			Mounts:         mounts,
			CapDrop:        []string{"ALL"},
			SecurityOpt:    []string{"no-new-privileges", "seccomp=" + seccompProfile},
			Runtime:        agentapi.RuntimeRunc, // regardless of Docker's default: the namespace is shared
			ReadonlyRootfs: true,
			RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
			IpcMode:        container.IPCModePrivate,
			LogConfig:      logConfig("1m", "2"),
			OomScoreAdj:    guestOOMScore(),
			Resources:      container.Resources{Memory: guestMemory, MemorySwap: guestMemory, PidsLimit: &pids},
		},
	})
}

// guestOOMScore returns a score that keeps the kernel from killing the guest first when memory is short: the node would
// end with it. It returns 0 if this machine's root may not lower the score (because the machine is a container itself):
// the start would fail.
func guestOOMScore() int {
	if may, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0); err != nil || may == 0 {
		return 0
	}
	return -500
}

// Bind is a folder of the host that a workload sees.
type Bind struct {
	Source, Target string
	ReadOnly       bool
}

// WorkloadSpec is a workload to create.
type WorkloadSpec struct {
	Lease   agentapi.LeaseSpec
	Guest   string // id of the guest's container
	ImageID string // image that was pulled: sha256:…
	Files   leasefiles.Layout
	Cores   cores.Set // the zero Set: any of the host's
	Scratch string    // the node's own scratch folder, mounted at agentapi.ScratchPath; "" = none
	Binds   []Bind    // the node's volumes
	Resume  string    // label of the snapshot that was restored, for guestenv.ResumeLabel; "" = none
	// Devices are the device nodes that its GPUs must have in the container: its init opens each before the barrier.
	Devices []string
	RDMA    []agentapi.HCA // the RDMA ports that it gets; none of the host's others are visible
}

// EnsureWorkload creates and starts the renter's container up to its barrier. An existing container of that name is
// adopted; one that has ended is returned as it is. An error that retrying cannot fix is a Refusal.
func (e *Engine) EnsureWorkload(ctx context.Context, w WorkloadSpec) (Container, error) {
	img, err := e.docker.ImageInspect(ctx, w.ImageID)
	if err != nil {
		return Container{}, unavailable(err, "look at the image")
	}
	command := commandLine(img.Config, w.Lease.Entrypoint, w.Lease.Command)
	if len(command) == 0 {
		return Container{}, Refusal{agentapi.ReasonCommandNotFound, "the image has no command of its own: give one"}
	}
	var own []string
	if img.Config != nil {
		own = img.Config.Env
		if len(img.Config.Volumes) > 0 { // pulled by an older agent: volumes would have no size limit
			return Container{}, Refusal{agentapi.ReasonRuntimeFailed,
				"the host has the image with its volumes; another start fetches it without them"}
		}
	}
	facts, attach, err := e.attachNow(ctx, w.Lease)
	if err != nil {
		return Container{}, err
	}
	env, err := guestenv.Build(w.Lease, Visible(attach, w.Lease.GPUs), own, w.Resume, w.RDMA...)
	if err != nil {
		return Container{}, Refusal{agentapi.ReasonRuntimeFailed, "the environment is refused: " + err.Error()}
	}
	hc := e.workHostConfig(w, attach)
	hc.DeviceRequests = facts.deviceRequests(attach, w.Lease.GPUs)
	if attach == AttachNVIDIA {
		hc.Devices = deviceNodes(w.Devices)
	}
	if attach == AttachNodes {
		if err := addNodes(hc, w.Devices); err != nil {
			return Container{}, err
		}
	}
	addRDMA(hc, e.cfg.Infiniband, w.RDMA)
	proof := e.proof(attach, w.Devices, w.Lease.GPUs)
	if w.Lease.Network.NCCL != nil && e.cfg.NCCL && len(proof.GPUs) > 0 && len(w.RDMA) > 0 {
		proof.Reduce = reduceRequest(w.Lease, w.RDMA)
	}
	if err := e.hold(facts, attach, w.Lease, hc); err != nil {
		return Container{}, err
	}
	return e.pinned(ctx, w.Lease.LeaseRef, client.ContainerCreateOptions{
		Config: &container.Config{
			Image:       w.ImageID,
			Entrypoint:  guest.InitArgs(w.Lease.LeaseRef, proof, command),
			Env:         env,
			User:        w.Lease.User,
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: hc,
	})
}

// attachNow decides how a workload gets its GPUs, by what Docker has at this moment: specifications and runtimes are
// added and removed while the agent runs. It returns Docker's facts if the workload needs any. Real GPUs that cannot be
// attached are a Refusal: the workload would run, and be paid for, without them.
func (e *Engine) attachNow(ctx context.Context, lease agentapi.LeaseSpec) (facts Facts, mode Attach, err error) {
	real := len(lease.GPUs) > 0 && !e.cfg.Simulated
	if !real && !lease.DiskLimited && lease.Runtime != agentapi.RuntimeRunsc {
		return Facts{}, AttachNone, nil
	}
	facts = e.Facts(ctx)
	switch {
	case facts.Version == "":
		return facts, AttachNone, fault.New(fault.Unavailable, "the Docker daemon does not say what it has")
	case !real:
		return facts, AttachNone, nil
	}
	mode, ok := facts.Attach(lease.GPUs)
	if asked := e.cfg.Attach; asked != "" && mode != AttachNodes {
		byRuntime := facts.NVIDIARuntime && !slices.ContainsFunc(lease.GPUs, isSlice)
		mode, ok = asked, asked == AttachCDI && facts.CDI.usable(lease.GPUs) || asked == AttachNVIDIA && byRuntime
	}
	if !ok {
		detail := fmt.Sprintf("Docker here cannot attach GPUs (--attach %s)", cmp.Or(e.cfg.Attach, "not given"))
		if p := facts.AttachProblem(lease.GPUs); p != nil {
			detail += ": " + p.Cause + " " + p.Evidence
		}
		return facts, AttachNone, Refusal{agentapi.ReasonRuntimeFailed, clip(detail)}
	}
	return facts, mode, nil
}

func (e *Engine) workHostConfig(w WorkloadSpec, attach Attach) *container.HostConfig {
	pids, memory := pidsOf(w.Lease.CPUs, hostPids()), w.Lease.RAMMB*mb
	shm := max(memory/2, minShm)
	if len(w.Lease.GPUs) > 1 {
		shm = max(shm, minShmMulti)
	}
	node := mount.Mount{Type: mount.TypeBind, Source: w.Files.Node, Target: guest.NodeDir, ReadOnly: true}
	hc := &container.HostConfig{
		NetworkMode:   container.NetworkMode("container:" + w.Guest),
		Mounts:        append(e.mounts(w.Files), node),
		IpcMode:       container.IPCModePrivate,
		ShmSize:       shm,
		CapDrop:       []string{"ALL"},
		CapAdd:        workCaps,
		SecurityOpt:   []string{"no-new-privileges", "seccomp=" + seccompProfile},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     logConfig("16m", "4"),
		Resources: container.Resources{
			Memory: memory, MemorySwap: memory, NanoCPUs: int64(w.Lease.CPUs * 1e9), PidsLimit: &pids,
			CpusetCpus: w.Cores.CPUs, CpusetMems: w.Cores.Mems, Ulimits: ulimits(),
		},
	}
	if len(e.proof(attach, nil, w.Lease.GPUs).GPUs) > 0 {
		hc.Mounts = append(hc.Mounts, e.checkMount())
	}
	if w.Scratch != "" {
		hc.Mounts = append(hc.Mounts, mount.Mount{Type: mount.TypeBind, Source: w.Scratch, Target: agentapi.ScratchPath})
	}
	for _, b := range w.Binds {
		hc.Mounts = append(hc.Mounts, mount.Mount{Type: mount.TypeBind, Source: b.Source, Target: b.Target,
			ReadOnly: b.ReadOnly})
	}
	if attach != AttachNVIDIA { // there Docker's default may be NVIDIA's wrapper of it
		hc.Runtime = agentapi.RuntimeRunc
	}
	if e.cfg.DiskLimited && w.Lease.DiskGB > 0 {
		hc.StorageOpt = sized(w.Lease.DiskGB)
	}
	return hc
}

// Visible returns the value of NVIDIA_VISIBLE_DEVICES. It overrides the value that an image may set.
func Visible(a Attach, gpus []string) string {
	if a != AttachNVIDIA || len(gpus) == 0 {
		return "void"
	}
	return strings.Join(gpus, ",")
}

// hookDriverSince is a Docker whose driver "nvidia" asks CDI first, and NVIDIA's hook only if CDI does not know the
// GPU. Its driver of the hook alone has another name, which Docker 29.0 does not know.
const hookDriverSince = "29.5.1"

// deviceRequests returns how Docker is asked for GPUs. NVIDIA's runtime is used where CDI cannot be, so CDI must not be
// tried: with a specification of a driver that was replaced since, the container would not start.
func (f Facts) deviceRequests(a Attach, gpus []string) []container.DeviceRequest {
	switch {
	case len(gpus) == 0:
		return nil
	case a == AttachCDI:
		names := make([]string, len(gpus))
		for i, g := range gpus {
			names[i] = "nvidia.com/gpu=" + g
		}
		return []container.DeviceRequest{{Driver: "cdi", DeviceIDs: names}}
	case a == AttachNVIDIA:
		driver := "nvidia"
		if !versionLess(versionNumber.FindString(f.Version), hookDriverSince) {
			driver = "nvidia.runtime-hook"
		}
		return []container.DeviceRequest{{
			Driver:       driver,
			DeviceIDs:    gpus,
			Capabilities: [][]string{append([]string{"gpu"}, strings.Split(guestenv.DriverCapabilities, ",")...)},
		}}
	}
	return nil
}

// mounts returns the mounts that guest and workload share: the injected binary and the three files that Docker would
// otherwise write itself. If only the guest mounted them, they would be writable in the workload.
func (e *Engine) mounts(files leasefiles.Layout) []mount.Mount {
	return []mount.Mount{readOnly(e.cfg.GuestBinary, guest.Binary), readOnly(files.Hosts, "/etc/hosts"),
		readOnly(files.ResolvConf, "/etc/resolv.conf"), readOnly(files.Hostname, "/etc/hostname")}
}

func readOnly(source, target string) mount.Mount {
	return mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: true}
}

func logConfig(size, files string) container.LogConfig {
	return container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": size, "max-file": files}}
}

// createLimit is how long creating and starting a container may take on a busy daemon.
const createLimit = 2 * time.Minute

// ensure creates and starts one container, or adopts the one that has its name. Once begun it ignores ctx's
// cancellation: the daemon would continue, and the container could appear after a check that it does not exist.
func (e *Engine) ensure(ctx context.Context, ref agentapi.LeaseRef, role Role,
	opts client.ContainerCreateOptions) (Container, error) {
	if err := ctx.Err(); err != nil {
		return Container{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
	defer cancel()
	opts.Name = e.name(ref, role)
	opts.Config.Labels = e.labels(ref, role)
	_, err := e.docker.ContainerCreate(ctx, opts)
	if err != nil && !cerrdefs.IsConflict(err) {
		return Container{}, e.refused(err, "create the %s container", role)
	}
	c, err := e.Inspect(ctx, ref, role)
	if err != nil {
		return Container{}, err
	}
	if c.State != Created {
		return c, nil
	}
	if _, err := e.docker.ContainerStart(ctx, c.ID, client.ContainerStartOptions{}); err != nil {
		return Container{}, e.refused(err, "start the %s container", role)
	}
	return e.Inspect(ctx, ref, role)
}

// Refusal is an error of Docker's that retrying does not change.
type Refusal struct {
	Reason string // agentapi's
	Detail string // for people
}

func (r Refusal) Error() string { return r.Reason + ": " + r.Detail }

// refused returns a Refusal, or an Unavailable fault if the trouble may pass. When a start fails, the daemon's message
// distinguishes "no space" from a missing binary.
func (e *Engine) refused(err error, format string, args ...any) error {
	text := err.Error()
	switch {
	case Down(err), cerrdefs.IsCanceled(err), cerrdefs.IsDeadlineExceeded(err):
		return unavailable(err, format, args...)
	case strings.Contains(text, "no space left on device"):
		return Refusal{agentapi.ReasonNoDisk, clip(text)}
	case cerrdefs.IsInvalidArgument(err), cerrdefs.IsInternal(err), cerrdefs.IsNotImplemented(err),
		cerrdefs.IsPermissionDenied(err):
		if reason, detail := ReasonOfImage(text); reason != "" {
			return Refusal{reason, clip(detail)}
		}
		return Refusal{agentapi.ReasonRuntimeFailed, fmt.Sprintf(format, args...) + ": " + clip(text)}
	}
	return unavailable(err, format, args...)
}

// commandLine returns what a node runs: as with `docker run IMAGE COMMAND`, the renter's command replaces the image's
// own, and the image's entry point stays before it. As with `docker run --entrypoint`, the renter's entry point
// replaces both of the image's, because the image's command consists of arguments for the image's entry point.
func commandLine(image *dockerspec.DockerOCIImageConfig, entrypoint, command []string) []string {
	if image == nil || len(entrypoint) > 0 {
		return append(slices.Clone(entrypoint), command...)
	}
	if len(command) == 0 {
		command = image.Cmd
	}
	return append(slices.Clone(image.Entrypoint), command...)
}
