package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// proof returns what a container's init proves about its GPUs: nothing if nothing is attached, unless the GPUs are
// simulated and so is CUDA.
func (e *Engine) proof(mode Attach, devices, gpus []string) guest.Proof {
	if mode == AttachNone && !e.cfg.FakeCUDA {
		return guest.Proof{}
	}
	p := guest.Proof{Fake: e.cfg.FakeCUDA}
	if mode != AttachNone {
		p.Devices = devices
	}
	if e.cfg.CheckDir != "" && mode != AttachNodes { // AMD's do not run CUDA
		p.GPUs = gpus
	}
	return p
}

// deviceNodes returns device nodes for Docker to put into a container. NVIDIA's runtime does so too, by a hook that
// runc does not know of: with systemd's control groups, a reload of systemd's configuration (as by nearly every package
// installation) sets the container's devices again, without those. Nodes that are not there yet are left to the hook.
func deviceNodes(paths []string) []container.DeviceMapping {
	var out []container.DeviceMapping
	if len(paths) > 0 {
		paths = append(slices.Clone(paths), "/dev/nvidia-uvm-tools")
	}
	for _, p := range paths {
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
			out = append(out, container.DeviceMapping{PathOnHost: p, PathInContainer: p, CgroupPermissions: "rw"})
		}
	}
	return out
}

// checkMount is the check's folder in a container.
func (e *Engine) checkMount() mount.Mount {
	return mount.Mount{Type: mount.TypeBind, Source: e.cfg.CheckDir, Target: gpucheck.Dir, ReadOnly: true}
}

// checkMemory is the limit of a container that only checks GPUs, per GPU: a CUDA context takes some hundred MB of the
// host's memory.
const checkMemory = 2 << 30

// Checks reports whether this engine can check GPUs.
func (e *Engine) Checks() bool { return e.cfg.CheckDir != "" && (!e.cfg.Simulated || e.cfg.FakeCUDA) }

// CheckGPUs checks the named GPUs in a container of their own, made as a workload's is but of an image without any
// file. It removes the container in the end, also if ctx is done. AMD's GPUs are not made to compute: the container
// opens devices, their nodes, and asks KFD for its version.
func (e *Engine) CheckGPUs(ctx context.Context, gpus, devices []string) (res gpucheck.Result, err error) {
	facts, attach, err := e.attachNow(ctx, agentapi.LeaseSpec{GPUs: gpus})
	if err != nil {
		return res, err
	}
	image, err := e.ensureBaseImage(ctx)
	if err != nil {
		return res, err
	}
	name := e.checkName(gpus)
	if err := e.removeCheck(ctx, name); err != nil { // of an agent that was killed
		return res, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, e.removeCheck(end, name))
	}()
	spec := e.checkContainer(name, image, attach, gpus)
	spec.HostConfig.DeviceRequests = facts.deviceRequests(attach, gpus)
	if attach == AttachNodes {
		if err := addNodes(spec.HostConfig, devices); err != nil {
			return res, err
		}
		spec.Config.Entrypoint = guest.CheckArgs(guest.Proof{Devices: devices})
	}
	if _, err := e.docker.ContainerCreate(ctx, spec); err != nil {
		return res, e.refused(err, "create the container that checks GPUs")
	}
	if _, err := e.docker.ContainerStart(ctx, name, client.ContainerStartOptions{}); err != nil {
		return res, e.refused(err, "start the container that checks GPUs")
	}
	wait := e.docker.ContainerWait(ctx, name, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-wait.Result:
	case err := <-wait.Error:
		return res, unavailable(err, "wait for the check of GPUs")
	}
	return e.checkResult(ctx, name)
}

// checkName is the name of the container that checks these GPUs.
func (e *Engine) checkName(gpus []string) string {
	h := fnv.New64a()
	io.WriteString(h, strings.Join(slices.Sorted(slices.Values(gpus)), ","))
	return fmt.Sprintf("mst-%s-gpucheck-%x", Host8(e.cfg.Host), h.Sum64())
}

func (e *Engine) removeCheck(ctx context.Context, name string) error {
	_, err := e.docker.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	return unavailable(err, "remove the container that checked GPUs")
}

func (e *Engine) checkContainer(name, image string, attach Attach, gpus []string) client.ContainerCreateOptions {
	pids, memory := int64(maxPids), checkMemory*int64(len(gpus))
	hc := &container.HostConfig{
		NetworkMode: "none",
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: e.cfg.GuestBinary, Target: guest.Binary, ReadOnly: true}},
		IpcMode:       container.IPCModePrivate,
		CapDrop:       []string{"ALL"},
		SecurityOpt:   []string{"no-new-privileges", "seccomp=" + seccompProfile},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     logConfig("1m", "2"),
		Resources:     container.Resources{Memory: memory, MemorySwap: memory, PidsLimit: &pids},
	}
	if attach != AttachNodes {
		hc.Mounts = append(hc.Mounts, e.checkMount())
	}
	if attach != AttachNVIDIA {
		hc.Runtime = agentapi.RuntimeRunc
	}
	return client.ContainerCreateOptions{
		Name: name,
		Config: &container.Config{
			Image:      image,
			Entrypoint: guest.CheckArgs(guest.Proof{GPUs: gpus, Fake: e.cfg.FakeCUDA}),
			Env: []string{"NVIDIA_VISIBLE_DEVICES=" + Visible(attach, gpus),
				"NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
			WorkingDir: "/",
			Labels:     map[string]string{labelHost: e.cfg.Host.String(), labelRole: string(check)},
		},
		HostConfig: hc,
	}
}

func (e *Engine) checkResult(ctx context.Context, name string) (res gpucheck.Result, err error) {
	r, err := e.docker.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return res, unavailable(err, "read what the check of GPUs found")
	}
	defer r.Close()
	var out, words bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &words, io.LimitReader(r, 1<<20)); err != nil {
		return res, unavailable(err, "read what the check of GPUs found")
	}
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		return res, fault.New(fault.Unavailable, "the check of GPUs has no result: %s", clip(words.String()))
	}
	return res, nil
}
