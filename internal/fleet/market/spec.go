package market

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Scope says how far apart the nodes of a cluster may be.
type Scope string

const (
	ScopeAny    Scope = "any"    // distinct hosts, anywhere
	ScopeFabric Scope = "fabric" // distinct hosts of one fabric
	ScopeHost   Scope = "host"   // all nodes on one host
)

// Spec is the cluster spec of the REST API: what a renter asks for. Reading one from JSON sets the defaults and refuses
// unknown fields; Validate checks the rest. RegistryAuth and the values of Env are secrets: see Split.
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
	Command      []string          `json:"command"`
	Env          map[string]string `json:"env"`
	Ports        []Port            `json:"ports"`
	DiskGB       int64             `json:"disk_gb"`
	DiskLimited  bool              `json:"disk_limited,omitempty"`
	ScratchGB    int64             `json:"scratch_gb,omitempty"`
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

// RegistryAuth opens a private image registry. Secret.
type RegistryAuth struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Port is a port of the workload the renter wants to reach.
type Port struct {
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
}

// Network is what the renter asks of the network between the nodes.
type Network struct {
	Scope Scope `json:"scope"`
	// MinGbps is the least all-reduce bus bandwidth. Hosts known to be slower are not placed; what is not known is
	// found out by the preflight, before anything is billed.
	MinGbps float64 `json:"min_gbps"`
}

// DefaultSpec is what an empty JSON object means.
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

// Mask stands for the value of an environment variable wherever a spec is shown or stored in the clear.
const Mask = "***"

// Split takes the secrets out: the first result may be stored and shown, its env holds names with Mask as value.
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

// GPUs is the number of GPUs of the whole cluster.
func (s Spec) GPUs() int { return s.Nodes * s.GPUsPerNode }

// ProjectName is the project the cluster is counted to, "" when the renter named none.
func (s Spec) ProjectName() string {
	if s.Project == nil {
		return ""
	}
	return *s.Project
}

// Duration is the asked running time in seconds, 0 when the renter set none.
func (s Spec) Duration() int64 {
	if s.MaxDuration == nil {
		return 0
	}
	return *s.MaxDuration
}

// free are the fields a renter may still set when renting a quote: they change neither placement nor price.
var free = []string{"name", "project", "labels", "image", "registry_auth", "restart", "egress", "command", "env",
	"ports",
	"ssh_key_ids", "budget", "on_node_failure"}

// Override reads further fields from a JSON object over a quoted spec. Fields that would change placement or price
// are refused, each by name.
func (s Spec) Override(b []byte) (Spec, error) {
	out := s
	err := out.decode(b, func(name string) bool { return slices.Contains(free, name) })
	return out, err
}
