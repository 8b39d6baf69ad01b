package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// AgentChannel is the version that the agents of a channel's hosts should run.
type AgentChannel struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Source    string    `json:"source"`
	Percent   int       `json:"percent"`
	Try       int       `json:"try"`
	Stopped   string    `json:"stopped"` // why the rollout stopped; "": it continues
	ChangedAt time.Time `json:"changed_at"`
}

// AgentCount is how many hosts of a channel run a version, and whether it is the one they should run.
type AgentCount struct {
	Channel string `json:"channel"`
	Version string `json:"agent_version"`
	State   string `json:"update_state"`
	Update  string `json:"update_version"`
	Hosts   int64  `json:"hosts"`
}

// Agents lists all channels, and how many hosts run which version.
type Agents struct {
	Channels []AgentChannel `json:"channels"`
	Hosts    []AgentCount   `json:"hosts"`
}

// SealState is how many of the stored secrets are sealed with the platform's present secret.
type SealState struct {
	Rotating  bool       `json:"rotating" doc:"the server that answers accepts MUSTER_SECRET_PREVIOUS, too"`
	Resealed  int64      `json:"resealed" doc:"clusters whose secrets were sealed again since the change"`
	Remaining int64      `json:"remaining" doc:"clusters whose secrets the other secret seals, after the last pass"`
	PassedAt  *time.Time `json:"passed_at,omitempty" doc:"when all were last looked at"`
	NeededTo  *time.Time `json:"needed_to,omitempty" doc:"until when the other secret is needed, if none remain: answers and links that it made live a day"`
	Done      bool       `json:"done" doc:"MUSTER_SECRET_PREVIOUS is not needed any more"`
}

// Sending is whether requests that move money are sent to Stripe.
type Sending struct {
	Paused bool       `json:"paused" doc:"no payment, refund, transfer, reversal, invoice or usage is sent to Stripe; what is decided meanwhile waits"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}

// Gangs is what the rules of gangs decided over some days. For admins.
type Gangs struct {
	Strikes   []GangStrikes `json:"strikes" doc:"by host, kind and opponent, the latest first"`
	PairBans  []PairBan     `json:"pair_bans" doc:"pairs that are not placed together now"`
	Relief    []GangRelief  `json:"relief" doc:"by cluster, the most first"`
	Renters   []Unbilled    `json:"unbilled_by_renter" doc:"time of a renter's clusters that was not billed because not every rank was proven up, the most first"`
	Starts    []StartHolds  `json:"starts" doc:"GPUs that organisations held before their clusters ran, or without them ever running, the most first"`
	Operators []Unbilled    `json:"unbilled_by_operator" doc:"time for which an operator's hosts are to blame, the most first"`
}

// StartHolds is for how long the starts of an organisation held GPUs without payment.
type StartHolds struct {
	Org     id.Org     `json:"org_id"`
	Name    string     `json:"name"`
	Starts  int64      `json:"starts" doc:"starts that ended, whether they ran or failed"`
	HeldMS  int64      `json:"held_gpu_ms" doc:"GPU-milliseconds from the claim until every rank ran or the start had failed"`
	CountMS int64      `json:"counted_gpu_ms" doc:"what of it counts in the start quota: not what hosts or the platform are to blame for"`
	Value   money.Nano `json:"value" doc:"what the counted time would have cost"`
	LastAt  time.Time  `json:"last_at"`
}

// GangStrikes are the strikes of one host.
type GangStrikes struct {
	Host       id.Host   `json:"host_id"`
	HostName   string    `json:"host_name"`
	Org        id.Org    `json:"org_id" doc:"its operator"`
	Kind       string    `json:"kind" enum:"doubt,start,loss,undecided"` // doubt, start, loss, undecided
	AgainstOrg id.Org    `json:"against_org_id,omitzero" doc:"the other operator of an undecided end"`
	Strikes    int64     `json:"strikes"`
	LastAt     time.Time `json:"last_at"`
}

// PairBan keeps a renter and a host, or two operators, from being in one gang.
type PairBan struct {
	A     string    `json:"a" doc:"an organisation or a host"`
	AName string    `json:"a_name"`
	B     string    `json:"b" doc:"the other one"`
	BName string    `json:"b_name"`
	Until time.Time `json:"until"`
}

// GangRelief is what the platform paid to hosts that stood by in one cluster.
type GangRelief struct {
	Cluster  id.Cluster `json:"cluster_id"`
	Org      id.Org     `json:"org_id" doc:"its renter"`
	Name     string     `json:"name"`
	Relief   money.Nano `json:"relief"`
	Millis   int64      `json:"standby_ms"`
	UsageFee money.Nano `json:"usage_fee" doc:"the platform's fee on the same cluster: relief is never above it"`
	LastAt   time.Time  `json:"last_at"`
}

// Unbilled is time that was not billed, by organisation.
type Unbilled struct {
	Org         id.Org `json:"org_id"`
	Name        string `json:"name"`
	Clusters    int64  `json:"clusters"`
	Suspensions int64  `json:"suspensions"`
	Millis      int64  `json:"ms"`
	UndecidedMS int64  `json:"undecided_ms" doc:"of ms, time for which no host is to blame because ranks lost contact with each other; 0 by operator"`
}

// VersionFloor is the oldest version of one of a host's programs that may run renters' work.
type VersionFloor struct {
	Component  string     `json:"component" enum:"docker,driver,runc,toolkit"`
	Branch     string     `json:"branch" doc:"the beginning of the versions that it is of; empty: of all that no other floor is of" example:"1.3."`
	Least      string     `json:"least" example:"1.3.3"`
	Reason     string     `json:"reason"`
	NoticedOn  string     `json:"noticed_on" doc:"the day on which the reason became known" example:"2025-11-05"`
	BlocksFrom *time.Time `json:"blocks_from" doc:"from when on an older version keeps a host from being rented; null: it is a warning only"`
}

// VersionFloors lists all version floors.
type VersionFloors struct {
	Items []VersionFloor `json:"items"`
}

// SetAgentChannelRequest is the body of SetAgentChannel.
type SetAgentChannelRequest struct {
	Version string `json:"version" doc:"a release's number, such as v1.4.0"`
	Source  string `json:"source" doc:"https address of the folder with SHA256SUMS, SHA256SUMS.sig and the archives"`
	Percent int    `json:"percent" doc:"of the channel's hosts; who is among a few is among more" minimum:"0" maximum:"100"`
	Again   bool   `json:"again,omitempty" doc:"hosts that gave this version up try it again"`
}

// SetSendingRequest is the body of SetSending.
type SetSendingRequest struct {
	Paused bool   `json:"paused"`
	Reason string `json:"reason" doc:"the audit trail keeps it"`
}

// SetVersionFloorRequest is the body of SetVersionFloor.
type SetVersionFloorRequest struct {
	Branch     string     `json:"branch,omitempty" doc:"the beginning of the versions that it is of, up to a dot; left out: of all that no other floor is of" maxLength:"20" example:"1.3."`
	Least      string     `json:"least" doc:"the oldest version" maxLength:"20" example:"1.3.3"`
	Reason     string     `json:"reason" doc:"operators read it" minLength:"1" maxLength:"200"`
	NoticedOn  string     `json:"noticed_on" doc:"the day on which the reason became known" format:"date" example:"2025-11-05"`
	BlocksFrom *time.Time `json:"blocks_from,omitempty" doc:"from when on an older version keeps a host from being rented; left out: it is a warning only"`
}

// RemoveVersionFloorRequest is the body of RemoveVersionFloor.
type RemoveVersionFloorRequest struct {
	Branch string `json:"branch,omitempty" maxLength:"20" example:"1.3."`
}
