package container

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/internal/agentapi"
)

// State is the state of a container.
type State string

const (
	Absent  State = ""
	Created State = "created" // never started
	Running State = "running"
	Exited  State = "exited" // or dead, or being removed: it will not run again
)

// Container is one of this agent's containers as Docker reports it.
type Container struct {
	ID         string
	Ref        agentapi.LeaseRef
	Role       Role
	State      State
	PID        int        // pid of its first process on the host; 0 unless running
	IP         netip.Addr // address on the bridge; guests only
	ImageID    string
	CPUs, Mems string // its processors and memory nodes, in the kernel's list format; "" = any
	ExitCode   int
	OOMKilled  bool
	Error      string    // the daemon's message if it could not run
	StartedAt  time.Time // zero if never
	FinishedAt time.Time // zero if never
}

// NetNS returns the path of the container's network namespace, for running guests.
func (c Container) NetNS() string { return "/proc/" + strconv.Itoa(c.PID) + "/ns/net" }

// Inspect returns a container by its name. It is no error if there is none: its State is Absent.
func (e *Engine) Inspect(ctx context.Context, ref agentapi.LeaseRef, role Role) (Container, error) {
	res, err := e.docker.ContainerInspect(ctx, e.name(ref, role), client.ContainerInspectOptions{})
	if cerrdefs.IsNotFound(err) {
		return Container{Ref: ref, Role: role}, nil
	}
	if err != nil {
		return Container{}, unavailable(err, "look at the %s container of %s", role, ref)
	}
	c := Container{ID: res.Container.ID, Ref: ref, Role: role, ImageID: res.Container.Image}
	if s := res.Container.State; s != nil {
		c.State, c.PID, c.ExitCode, c.OOMKilled, c.Error = stateOf(s.Status), s.Pid, s.ExitCode, s.OOMKilled, s.Error
		c.StartedAt, c.FinishedAt = moment(s.StartedAt), moment(s.FinishedAt)
		if c.State == Created && s.ExitCode != 0 {
			c.State = Exited // a start that the runtime refused leaves "created" behind
		}
	}
	if hc := res.Container.HostConfig; hc != nil {
		c.CPUs, c.Mems = hc.CpusetCpus, hc.CpusetMems
	}
	if ns := res.Container.NetworkSettings; ns != nil {
		for _, n := range ns.Networks {
			c.IP = n.IPAddress
		}
	}
	return c, nil
}

// List returns every container of a lease with this agent's label, whatever its state, with identity and state only.
func (e *Engine) List(ctx context.Context) ([]Container, error) {
	res, err := e.docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: e.mine()})
	if err != nil {
		return nil, unavailable(err, "list containers")
	}
	var out []Container
	for _, s := range res.Items {
		if s.Labels[labelRole] == string(check) {
			continue
		}
		epoch, err := strconv.Atoi(s.Labels[labelEpoch])
		if err != nil {
			e.cfg.Log.Warn("container with our label and no epoch", "id", s.ID)
			continue
		}
		out = append(out, Container{ID: s.ID, Ref: agentapi.LeaseRef{Lease: s.Labels[labelLease], Epoch: epoch},
			Role: Role(s.Labels[labelRole]), State: stateOf(s.State), ImageID: s.ImageID})
	}
	return out, nil
}

func stateOf(s container.ContainerState) State {
	switch s {
	case container.StateCreated:
		return Created
	case container.StateRunning, container.StatePaused, container.StateRestarting:
		return Running
	}
	return Exited
}

// moment parses Docker's times; Docker's "0001-01-01T00:00:00Z" is the zero time.
func moment(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Stop sends a container its stop signal, and kills it after grace. It is no error if the container does not exist or
// has ended. Stop returns when the container has ended.
func (e *Engine) Stop(ctx context.Context, ref agentapi.LeaseRef, role Role, grace time.Duration) error {
	seconds := int(grace / time.Second)
	_, err := e.docker.ContainerStop(ctx, e.name(ref, role), client.ContainerStopOptions{Timeout: &seconds})
	if cerrdefs.IsNotFound(err) || cerrdefs.IsNotModified(err) {
		return nil
	}
	return unavailable(err, "stop the %s container of %s", role, ref)
}

// Kill ends a container's processes at once. It is no error if the container does not exist or has ended.
func (e *Engine) Kill(ctx context.Context, ref agentapi.LeaseRef, role Role) error {
	_, err := e.docker.ContainerKill(ctx, e.name(ref, role), client.ContainerKillOptions{Signal: "KILL"})
	if cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) {
		return nil
	}
	return unavailable(err, "kill the %s container of %s", role, ref)
}

// Remove removes a container and its anonymous volumes, killing it if it still runs. It is no error if there is none.
func (e *Engine) Remove(ctx context.Context, ref agentapi.LeaseRef, role Role) error {
	_, err := e.docker.ContainerRemove(ctx, e.name(ref, role), client.ContainerRemoveOptions{
		Force:         true,
		RemoveVolumes: true,
	})
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	if cerrdefs.IsConflict(err) {
		return unavailable(err, "the %s container of %s is being removed already", role, ref)
	}
	return unavailable(err, "remove the %s container of %s", role, ref)
}
