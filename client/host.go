package client

import (
	"math"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Enrollment is a token with which one host enrols, once.
type Enrollment struct {
	ID        id.Enrollment `json:"id"`
	Token     string        `json:"token" doc:"enrols one host, once; shown once"`
	ExpiresAt time.Time     `json:"expires_at"`
	Command   string        `json:"command" doc:"to be run on the host; reads the token from standard input"`
}

// Host is one of the caller's machines.
type Host struct {
	ID           id.Host    `json:"id"`
	Name         string     `json:"name"`
	Region       string     `json:"region"`
	Fabric       *string    `json:"fabric"`
	State        string     `json:"state" enum:"enrolled,active,draining,retired"`
	Reachable    bool       `json:"reachable"`
	Selling      bool       `json:"selling" doc:"can be rented now"`
	NotSelling   string     `json:"not_selling" doc:"why it cannot"`
	Simulated    bool       `json:"simulated"`
	Ephemeral    bool       `json:"ephemeral" doc:"enrolled as a machine that may vanish: it is retired when it has not reported for a day and has no lease"`
	MultiNode    bool       `json:"multi_node"`
	ReclaimAt    *time.Time `json:"reclaim_at" doc:"what runs on it ends then: you take it back"`
	Actions      []string   `json:"actions"`
	CPUCores     int        `json:"cpu_cores"`
	RAMMB        int64      `json:"ram_mb"`
	DiskGB       int64      `json:"disk_gb"`
	DiskLimited  bool       `json:"disk_limited" doc:"nodes are held to their disk_gb; problems say why not"`
	ScratchGB    int64      `json:"scratch_gb" doc:"what all nodes' scratches may take together; 0: none is offered, problems say why if it should be"`
	Runtimes     []string   `json:"runtimes" doc:"OCI runtimes that workloads can be run with"`
	Driver       string     `json:"driver"`
	CUDAMax      string     `json:"cuda_max"`
	AgentVersion string     `json:"agent_version"`
	LastSeenAt   *time.Time `json:"last_seen_at"`
	CreatedAt    time.Time  `json:"created_at"`
	GPUs         []HostGPU  `json:"gpus"`
	// NVLinkMeasured has the models with several GPUs that NVLink joins to a ring.
	NVLinkMeasured []NVLinkMeasured `json:"nvlink_measured" doc:"how fast its GPUs send to each other over NVLink, by model; empty: not measured within 30 days, or they are not joined"`
	Problems       []Problem        `json:"problems" doc:"what keeps the host from being rentable, or from being good"`
	Offers         []OwnOffer       `json:"offers" doc:"one per GPU model, listed or not"`
	Agent          *HostAgent       `json:"agent,omitempty" doc:"its agent and how it stands with the version it should run; of one host, not in lists"`
	DataMonth      *DataMonth       `json:"data_month,omitempty" doc:"what moved over its line this month for leases and of images, and the cap; of one host, not in lists"`
}

// DataMonth is what moved over a host's own line in the present calendar month (UTC), and how much may. What ranks
// exchange within the host's networks does not go over it.
type DataMonth struct {
	Month       string     `json:"month" doc:"such as 2026-11; UTC"`
	UpBytes     int64      `json:"up_bytes" doc:"sent by leases to the internet; with overlay_up_bytes it is what up_cap_gb bounds"`
	DownBytes   int64      `json:"down_bytes" doc:"received by leases; with overlay_down_bytes and pulled_bytes it is what down_cap_gb bounds"`
	OverlayUp   int64      `json:"overlay_up_bytes" doc:"sent between the ranks of clusters, to hosts elsewhere and through relays"`
	OverlayDown int64      `json:"overlay_down_bytes"`
	PulledBytes *int64     `json:"pulled_bytes" doc:"received of images from registries at public addresses; null: the host's agent does not count it"`
	UpCapGB     *int64     `json:"up_cap_gb" doc:"a month, GB of 10^9 bytes; null: no cap"`
	DownCapGB   *int64     `json:"down_cap_gb"`
	UsedPercent float64    `json:"used_percent" doc:"of the cap that is nearer to its end, to a tenth; 0 without one"`
	CappedUntil *time.Time `json:"capped_until" doc:"a cap is used up: no new leases before then; what runs goes on"`
}

// Sent is all that went over the line, to the internet and between ranks: what UpCapGB bounds.
func (m *DataMonth) Sent() int64 { return plus(m.UpBytes, m.OverlayUp) }

// Received is all that came over the line, from the internet, between ranks and of images: what DownCapGB bounds.
func (m *DataMonth) Received() int64 {
	n := plus(m.DownBytes, m.OverlayDown)
	if m.PulledBytes != nil {
		n = plus(n, *m.PulledBytes)
	}
	return n
}

// plus adds what hosts report, which may be more than there is.
func plus(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

// HostAgent is what is known of one host's agent.
type HostAgent struct {
	Channel      string   `json:"channel"`
	Capabilities []string `json:"capabilities"`
	Wanted       string   `json:"wanted_version"` // "" = none but what it runs
	State        string   `json:"update_state"`
	Update       string   `json:"update_version"`
	Detail       string   `json:"update_detail"`
}

// HostGPU is one GPU of a host.
type HostGPU struct {
	ID            id.GPU            `json:"id"`
	UUID          string            `json:"uuid"`
	Index         int               `json:"index"`
	Vendor        string            `json:"vendor" enum:"nvidia,amd"`
	Kind          string            `json:"kind" enum:"gpu,slice" doc:"slice: a part of a GPU, which is not rented whole"`
	Parent        string            `json:"parent" doc:"UUID of the GPU that a slice is part of; empty: it is no slice" example:"GPU-5e0b6c1e-8f0a-4a52-9d5e-0c8f1f6f3a11"`
	AttachName    string            `json:"attach_name" doc:"name in the Container Device Interface; empty: not known" example:"nvidia.com/gpu=GPU-5e0b6c1e-8f0a-4a52-9d5e-0c8f1f6f3a11"`
	Runtimes      map[string]string `json:"runtimes" doc:"newest version of each runtime that its driver runs"`
	Links         []HostGPULink     `json:"links" doc:"active links to other GPUs"`
	Model         string            `json:"model"`
	VRAMMB        int64             `json:"vram_mb"`
	PowerLimitW   *int              `json:"power_limit_w" doc:"watts it may draw; null: not known"`
	PowerDefaultW *int              `json:"power_default_w" doc:"watts it was made to draw; null: not known"`
	Health        string            `json:"health" enum:"healthy,suspect,quarantined"`
	HealthReason  string            `json:"health_reason"`
	Degraded      string            `json:"degraded" doc:"why it is slower than it could be, and since when; empty: it is not" example:"HW thermal slowdown since 2026-11-24 02:10 UTC"`
	InUse         string            `json:"in_use" doc:"what uses it on the host itself, as Xorg, 412 MiB: it is not offered; empty: nothing does"`
	Display       bool              `json:"display" doc:"whether a display uses it: the driver then ends kernels that run for some seconds"`
	Present       bool              `json:"present" doc:"in the last inventory"`
	TakenFor      string            `json:"taken_for" doc:"quote, lease, own_use, maintenance; empty: free"`
	// Requalify describes the last request to reset and check it; empty in lists.
	Requalify string `json:"requalify" doc:"how far the last request to reset the GPU and check it is; empty: there was none, or this is a list" example:"reset and checked at 2026-11-25 02:10 UTC"`
}

// NVLinkMeasured is how fast a host's GPUs of one model send to each other over NVLink.
type NVLinkMeasured struct {
	GPUModel    string    `json:"gpu_model"`
	BusbwNVLink float64   `json:"busbw_nvlink" doc:"what the slowest GPU sent to the next one while all did, Gbit/s; offers have it rounded down to two digits" example:"2981.4"`
	SlowestGPU  int       `json:"slowest_gpu" doc:"index of that GPU" example:"3"`
	At          time.Time `json:"at"`
}

// HostGPULink is what connects a GPU with another one, or with the switches that lead to all others.
type HostGPULink struct {
	Peer string  `json:"peer" doc:"PCI bus id, or switch"`
	Type string  `json:"type" enum:"nvlink,xgmi"`
	Gbps float64 `json:"gbps" doc:"Gbit/s in one direction; 0: not known"`
}

// Problem is something wrong with a host: cause, evidence, fix.
type Problem struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Cause    string `json:"cause"`
	Evidence string `json:"evidence,omitempty"`
	Fix      string `json:"fix,omitempty"`
}

// OwnOffer is an offer of a host as its operator sees it.
type OwnOffer struct {
	ID           id.Offer     `json:"id"`
	HostID       id.Host      `json:"host_id"`
	GPUModel     string       `json:"gpu_model"`
	GPUs         int          `json:"gpus"`
	Price        *money.Micro `json:"price_per_gpu_hour"` // nil: not listed
	MinGPUs      int          `json:"min_gpus"`
	MaxDuration  *int64       `json:"max_duration"` // seconds; nil: no limit
	HostSharePPM int          `json:"host_share_ppm"`
}

// ReclaimForecast is what it would cost to take a host back now.
type ReclaimForecast struct {
	Leases   int        `json:"leases" doc:"that would end"`
	Credit   money.Nano `json:"credit" doc:"what renters would get back: the last hour of each lease"`
	HostPart money.Nano `json:"host_part" doc:"of credit, taken from your earnings; the platform returns its fee"`
	Currency string     `json:"currency"`
	Free     int64      `json:"free_notice" doc:"seconds of notice from which nothing is given back"`
}

// Earnings is what a host earned.
type Earnings struct {
	Currency string         `json:"currency"`
	Total    money.Nano     `json:"total"`    // of all proven time: the sum over leases
	Pending  money.Nano     `json:"pending"`  // of the last seconds, once they are proven
	Returned money.Nano     `json:"returned"` // of Total, given back to renters because the host failed
	Leases   []LeaseEarning `json:"leases"`   // newest first
	Days     []DayEarning   `json:"days"`     // newest first, in the org's zone; of leases that ended within 32 days
}

// LeaseEarning is what a lease earned.
type LeaseEarning struct {
	Lease     id.Lease   `json:"lease_id"`
	GPUModel  string     `json:"gpu_model"`
	GPUs      int        `json:"gpus"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Seconds   Seconds    `json:"seconds"` // billed
	Earned    money.Nano `json:"earned"`
	Returned  money.Nano `json:"returned"`         // of Earned, given back because the host failed
	Frozen    bool       `json:"frozen,omitempty"` // conflicting accounts of its time: the money waits
}

// DayEarning is what was earned on one day.
type DayEarning struct {
	Day    string     `json:"day"` // YYYY-MM-DD
	Earned money.Nano `json:"earned"`
}

// HostMetrics are readings of a host's GPUs.
type HostMetrics struct {
	From time.Time        `json:"from"`
	To   time.Time        `json:"to"`
	Step int              `json:"step" doc:"seconds between samples" example:"15"`
	GPUs []HostGPUMetrics `json:"gpus" doc:"the GPUs of the host"`
}

// HostGPUMetrics are the readings of one GPU of a host.
type HostGPUMetrics struct {
	Index   int      `json:"index"`
	UUID    string   `json:"uuid"`
	Model   string   `json:"model"`
	Samples []Sample `json:"samples"`
}

// Traffic is what one run of a lease transferred over the host's own line to the internet, as the host counted it.
// Traffic between ranks within the host's networks is not included.
type Traffic struct {
	LeaseID     id.Lease   `json:"lease_id"`
	Epoch       int        `json:"epoch" doc:"rises when the node starts again"`
	Connections int64      `json:"connections" doc:"tried to the outside, allowed or over a bound"`
	Refused     int64      `json:"refused" doc:"packets to where no lease may: private networks, metadata services, mail, ports that its egress has not"`
	UpBytes     int64      `json:"up_bytes" doc:"sent to the internet by the workload"`
	DownBytes   int64      `json:"down_bytes"`
	OverlayUp   int64      `json:"overlay_up_bytes" doc:"sent to other ranks over the line, and not in up_bytes: to hosts elsewhere and through relays; 0 of agents that do not count it"`
	OverlayDown int64      `json:"overlay_down_bytes" doc:"received from other ranks over the line, and not in down_bytes"`
	FirstAt     time.Time  `json:"first_at"`
	LastAt      time.Time  `json:"last_at" doc:"when the host reported last"`
	EndedAt     *time.Time `json:"ended_at" doc:"of the lease"`
}

// PriceChange is a change of price by the operator. Leases that ran then kept their price.
type PriceChange struct {
	At       time.Time    `json:"at"`
	GPUModel string       `json:"gpu_model"`
	Price    *money.Micro `json:"price_per_gpu_hour"` // from then on; nil: not listed
	Before   *money.Micro `json:"before"`             // nil: not listed
}

// ContestedGPU is a GPU of a host whose UUID hosts of several organisations list.
type ContestedGPU struct {
	UUID string `json:"uuid" doc:"the GPU's UUID, as its driver reports it"`
	// Challenger: another organisation listed it earlier. Holder: listed first, and never rented there. Incumbent: listed
	// first and rented there, or awarded.
	Contest  string    `json:"contest" enum:"challenger,holder,incumbent"`
	Offered  bool      `json:"offered" doc:"whether it can be rented: only an incumbent can"`
	Model    string    `json:"model"`
	Host     id.Host   `json:"host_id"`
	HostName string    `json:"host_name"`
	Org      id.Org    `json:"org_id" doc:"the operator"`
	OrgName  string    `json:"org_name"`
	ListedAt time.Time `json:"listed_at" doc:"when the host listed it first"`
	// The evidence, for admins.
	Leases        int        `json:"leases,omitempty" doc:"billed to other organisations on this host; for admins"`
	BilledSeconds float64    `json:"billed_seconds,omitempty" doc:"for how long they were billed; for admins"`
	Awarded       bool       `json:"awarded,omitempty" doc:"whether it was awarded to this operator; for admins"`
	AwardReason   string     `json:"award_reason,omitempty" doc:"of the last award to any operator; for admins"`
	AwardedAt     *time.Time `json:"awarded_at,omitempty" doc:"of the last award to any operator; for admins"`
}

// ContestedGPUs lists GPUs that hosts of several organisations list.
type ContestedGPUs struct {
	Items []ContestedGPU `json:"items"`
}

// AwardedGPU is a GPU and the host that it was found to be in.
type AwardedGPU struct {
	UUID string  `json:"uuid"`
	Host id.Host `json:"host_id"`
}

// CreateEnrollmentRequest is the body of CreateEnrollment.
type CreateEnrollmentRequest struct {
	Name   string `json:"name,omitempty" doc:"left out: the machine's own name" maxLength:"63"`
	Region string `json:"region" doc:"where it stands, such as eu-west"`
	Fabric string `json:"fabric,omitempty" doc:"the fast network it shares with your other hosts"`
}

// ChangeHostRequest is the body of ChangeHost.
type ChangeHostRequest struct {
	Name        *string `json:"name,omitempty"`
	GPUModel    string  `json:"gpu_model,omitempty" doc:"price and terms are for this model only; left out: for all on the host"`
	Price       *string `json:"price_per_gpu_hour,omitempty" doc:"a decimal in quotes; running leases keep theirs"`
	Unlist      bool    `json:"unlist,omitempty" doc:"take the price off: nothing new is rented"`
	MinGPUs     *int    `json:"min_gpus,omitempty"`
	MaxDuration *int64  `json:"max_duration,omitempty" doc:"seconds; 0: no limit"`
	Channel     *string `json:"agent_channel,omitempty" doc:"whose versions its agent follows: stable, another that the platform has, or off to update by hand"`
	UpCapGB     *int64  `json:"up_cap_gb,omitempty" doc:"GB of 10^9 bytes that leases may send over its line in a calendar month (UTC) before it takes no new leases; what runs goes on; 0: no cap"`
	DownCapGB   *int64  `json:"down_cap_gb,omitempty" doc:"the same for what they receive"`
}

// ActOnHostRequest is the body of ActOnHost.
type ActOnHostRequest struct {
	Action string `json:"action" doc:"one of the host's actions, or requalify"`
	Notice int64  `json:"notice,omitempty" doc:"of reclaim: seconds until what runs ends; 0: at once"`
	GPU    string `json:"gpu,omitempty" doc:"of requalify: UUID of a GPU that is not healthy and not in use; its host resets it, checks it and puts it back into service" maxLength:"100"`
}

// AwardGPURequest is the body of AwardGPU.
type AwardGPURequest struct {
	Host   string `json:"host_id" doc:"the host that lists the GPU and has it"`
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the operators read it"`
}

// HostsQuery selects hosts.
type HostsQuery struct {
	PageOf
	Retired bool `query:"retired" doc:"list retired hosts too"`
}

// PriceGuideQuery selects a GPU model.
type PriceGuideQuery struct {
	GPUModel string `query:"gpu_model" required:"true" minLength:"1" maxLength:"200" doc:"whole name of the model, as in your host's offers" example:"NVIDIA H100 80GB HBM3"`
}
