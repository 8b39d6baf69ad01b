// Package container runs a host's nodes in Docker.
//
// Invariants: everything that is created here carries its agent's label muster.host, and only objects with that label
// are listed, stopped or removed, so that several agents and other programs can share a daemon. A container's name
// consists of its agent, lease, epoch and role; if a container of that name exists it is adopted, and a second one is
// never created. A renter's environment is in the create request and nowhere else: not in labels, arguments or log
// lines.
package container

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Labels of everything an agent creates.
const (
	labelHost  = "muster.host"
	labelLease = "muster.lease"
	labelEpoch = "muster.epoch"
	labelRole  = "muster.role"
)

// Role is the role of a container in a node.
type Role string

const (
	Guest Role = "guest" // holds the network namespace
	Work  Role = "work"  // runs the renter's command
	check Role = "check" // checks GPUs; of no lease
)

// Attach is how GPUs get into a workload.
type Attach string

const (
	AttachCDI    Attach = "cdi"    // device names of the Container Device Interface
	AttachNVIDIA Attach = "nvidia" // the NVIDIA runtime's device requests
	AttachNodes  Attach = "nodes"  // device nodes alone: AMD's GPUs, whose user space is all in the image
	AttachNone   Attach = "none"   // simulated GPUs: there is nothing to attach
)

// Config configures an Engine.
type Config struct {
	Docker      string       // the daemon's address, "unix:///var/run/docker.sock"; "" = DOCKER_HOST or the usual socket
	Host        id.Host      // owner of the containers
	GuestBinary string       // path of muster-guest on this machine: static, mounted into every container
	Attach      Attach       // how GPUs are attached; "" = Docker's best way at the time a workload is created
	Simulated   bool         // the GPUs are simulated: there is nothing to attach
	CheckDir    string       // what checks of GPUs need (gpucheck.Prepare); "" = GPUs are not checked
	NCCL        bool         // CheckDir has NCCL: fabrics can be measured with it
	FakeCUDA    bool         // CheckDir has the fake CUDA library: simulated GPUs are checked too
	DiskLimited bool         // the storage driver enforces a size per container
	Infiniband  string       // folder of the host's RDMA device nodes; "" = /dev/infiniband
	Overlay     netip.Prefix // the clusters' range, which the bridge must not overlap
	Log         *slog.Logger
}

// Engine is one agent's part of a Docker daemon.
type Engine struct {
	cfg    Config
	docker *client.Client
	pinger *http.Client
	born   time.Time
	watch  outages
}

// New returns an Engine without connecting: the first call connects and negotiates the API version (1.41, Docker 20.10,
// is enough).
func New(cfg Config) (*Engine, error) {
	opts := []client.Opt{client.FromEnv}
	if cfg.Docker != "" {
		opts = append(opts, client.WithHost(cfg.Docker))
	}
	c, err := client.New(opts...)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the address of the Docker daemon is not usable")
	}
	return &Engine{cfg: cfg, docker: c, pinger: newPinger(c.Dialer()), born: time.Now()}, nil
}

// Close closes the connections.
func (e *Engine) Close() error { return e.docker.Close() }

// Host8 returns 8 hex digits that distinguish an agent's bridge, names and firewall table from those of other agents on
// the machine: the random end of its id.
func Host8(host id.Host) string {
	u := host.UUID()
	return hex.EncodeToString(u[12:])
}

// name returns the name of a container: mst-<host8>-<lease>-e<epoch>-<role>.
func (e *Engine) name(ref agentapi.LeaseRef, role Role) string {
	return fmt.Sprintf("mst-%s-%s-e%d-%s", Host8(e.cfg.Host), ref.Lease, ref.Epoch, role)
}

func (e *Engine) labels(ref agentapi.LeaseRef, role Role) map[string]string {
	return map[string]string{
		labelHost:  e.cfg.Host.String(),
		labelLease: ref.Lease,
		labelEpoch: strconv.Itoa(ref.Epoch),
		labelRole:  string(role),
	}
}

// mine returns a filter by this agent's label.
func (e *Engine) mine() client.Filters {
	return client.Filters{}.Add("label", labelHost+"="+e.cfg.Host.String())
}

// unavailable returns the error for callers when the daemon does not answer or refuses.
func unavailable(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if Down(err) { // the daemon's address and similar details are for the log
		return fault.Wrap(err, fault.Unavailable, "the host's container engine does not answer")
	}
	what := fmt.Sprintf(format, args...)
	if cerrdefs.IsNotFound(err) {
		return fault.Wrap(err, fault.NotFound, "%s: there is no such thing in Docker", what)
	}
	return fault.Wrap(err, fault.Unavailable, "%s: %s", what, clip(err.Error()))
}

// clip shortens a daemon's message to fit into a status.
func clip(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}

// Down reports whether err means that the daemon did not answer, as opposed to refusing the request.
func Down(err error) bool {
	return client.IsErrConnectionFailed(err) || cerrdefs.IsUnavailable(err) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, fs.ErrNotExist)
}

// Ping checks that the daemon answers.
func (e *Engine) Ping(ctx context.Context) error {
	_, err := e.docker.Ping(ctx, client.PingOptions{})
	return unavailable(err, "ask Docker")
}
