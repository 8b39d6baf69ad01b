package market

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Scope is how far apart the nodes of a cluster may be.
type Scope string

const (
	ScopeAny    Scope = "any"    // distinct hosts, anywhere
	ScopeFabric Scope = "fabric" // distinct hosts of one fabric
	ScopeHost   Scope = "host"   // all nodes on one host
)

// Spec is the cluster spec of the REST API. Decoding one from JSON sets the defaults and rejects unknown fields;
// Validate checks the rest. RegistryAuth and the values of Env are secrets; see Split.
type Spec struct {
	Name    string            `json:"name"`
	Project *string           `json:"project"`
	Labels  map[string]string `json:"labels"`

	Nodes       int    `json:"nodes"`
	GPUsPerNode int    `json:"gpus_per_node"`
	GPU         string `json:"gpu"`

	Image        string            `json:"image"`
	RegistryAuth *RegistryAuth     `json:"registry_auth,omitempty"`
	Restart      string            `json:"restart"`
	Egress       string            `json:"egress"`
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Command      []string          `json:"command"`
	User         string            `json:"user,omitempty"` // "" = the image's own
	Env          map[string]string `json:"env"`
	Ports        []Port            `json:"ports"`
	DiskGB       int64             `json:"disk_gb"`
	DiskLimited  bool              `json:"disk_limited,omitempty"`
	ScratchGB    int64             `json:"scratch_gb,omitempty"`
	Mounts       []Mount           `json:"mounts,omitempty"`
	Runtime      string            `json:"runtime,omitempty"`
	SSHKeyIDs    []id.SSHKey       `json:"ssh_key_ids"`

	MaxPricePerHour *money.Micro `json:"max_price_per_hour"`
	MaxDuration     *int64       `json:"max_duration"`
	Budget          *money.Nano  `json:"budget"`

	Network       Network `json:"network"`
	Trust         Trust   `json:"trust,omitempty"`
	OnNodeFailure string  `json:"on_node_failure"`
	Interruptible bool    `json:"interruptible"`
	Template      *string `json:"template"`
}

// RegistryAuth is the credentials for a private image registry. They are secret.
type RegistryAuth = client.RegistryAuth

// Mount is a volume that the nodes find at a path.
type Mount = client.Mount

// SnapshotPolicy says when a host takes snapshots of a volume by itself.
type SnapshotPolicy = client.SnapshotPolicy

// Port is a port of the workload that the renter wants to reach.
type Port = client.Port

// Network is the renter's requirements on the network between the nodes.
type Network struct {
	Scope Scope `json:"scope"`
	// MinGbps is the lowest acceptable all-reduce bus bandwidth in Gbit/s. Hosts that are known to be slower are excluded;
	// for hosts with unknown bandwidth, the preflight measures it before anything is billed.
	MinGbps float64 `json:"min_gbps"`
	// Fabric is agentapi.FabricRDMA if each node gets the RDMA ports of a whole host, all in one fabric; "" = none.
	Fabric string `json:"fabric,omitempty"`
	// MinBusbwGbps is the least all-reduce bandwidth over RDMA in Gbit/s, or, where nothing was measured, that of a host's
	// ports together; 0 = any.
	MinBusbwGbps float64 `json:"min_busbw_gbps,omitempty"`
}

// RDMA reports whether the nodes get RDMA ports.
func (n Network) RDMA() bool { return n.Fabric == agentapi.FabricRDMA }

// DefaultSpec returns the spec that an empty JSON object means.
func DefaultSpec() Spec {
	return Spec{
		Labels: map[string]string{}, Nodes: 1, GPUsPerNode: 1, Restart: "never", Egress: "full", Command: []string{},
		Env: map[string]string{}, Ports: []Port{}, DiskGB: 10, SSHKeyIDs: []id.SSHKey{}, Network: Network{Scope: ScopeAny},
		OnNodeFailure: "fail",
	}
}

// Secrets is the part of a spec that is stored only encrypted.
type Secrets struct {
	Env          map[string]string `json:"env,omitempty"`
	RegistryAuth *RegistryAuth     `json:"registry_auth,omitempty"`
}

// Mask replaces the value of an environment variable when a spec is shown or stored unencrypted.
const Mask = "***"

// Split separates the secrets. The first result may be stored and shown; its env has Mask as the value of each
// variable.
func (s Spec) Split() (Spec, Secrets) {
	sec := Secrets{Env: s.Env, RegistryAuth: s.RegistryAuth}
	s.Env = maps.Clone(s.Env)
	for k := range s.Env {
		s.Env[k] = Mask
	}
	s.RegistryAuth = nil
	return s, sec
}

// With is the inverse of Split.
func (s Spec) With(sec Secrets) Spec {
	s.Env = map[string]string{}
	maps.Copy(s.Env, sec.Env)
	s.RegistryAuth = sec.RegistryAuth
	return s
}

// GPUs returns the number of GPUs of the whole cluster.
func (s Spec) GPUs() int { return s.Nodes * s.GPUsPerNode }

// ProjectName returns the name of the cluster's project, or "" if the renter named none.
func (s Spec) ProjectName() string {
	if s.Project == nil {
		return ""
	}
	return *s.Project
}

// Duration returns the requested running time in seconds, or 0 if the renter set none.
func (s Spec) Duration() int64 {
	if s.MaxDuration == nil {
		return 0
	}
	return *s.MaxDuration
}

// free are the fields that a renter may still set when renting a quote, because they change neither placement nor
// price.
var free = []string{"name", "project", "labels", "image", "registry_auth", "restart", "egress", "entrypoint", "command",
	"env", "ports",
	"ssh_key_ids", "budget", "on_node_failure"}

// Overridable reports whether a renter may still set a field of the spec when renting a quote.
func Overridable(field string) bool { return slices.Contains(free, field) }

// Override decodes a JSON object of further fields over a quoted spec. It rejects each field that would change
// placement or price, by name.
func (s Spec) Override(b []byte) (Spec, error) {
	out := s
	err := out.decode(b, Overridable)
	return out, err
}
