package agentapi

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// EnrollPath is where an agent enrols, over HTTPS: POST EnrollRequest → EnrollReply, or a problem document.
const EnrollPath = "/agent/v1/enroll"

// EndpointsPath says where hosts connect, over HTTPS and to anybody: GET → Endpoints. A host asks before it enrols, so
// that what its network keeps closed is known before anything depends on it.
const EndpointsPath = "/agent/v1/endpoints"

// Endpoints are what hosts must be able to reach, beside the address that tells them.
type Endpoints struct {
	NATS   []string `json:"nats"`    // as EnrollReply has them
	NATSCA string   `json:"nats_ca"` // as EnrollReply has it
	Relays []string `json:"relays"`  // host:port of every relay, UDP
}

// StreamPath is where an agent dials back to: a WebSocket carrying one stream. The first message is text, a
// StreamHello. What follows is binary messages whose contents, put together, are the stream; message borders mean
// nothing. A normal closure (1000) is the stream's end; any other says in its reason what broke it.
const StreamPath = "/agent/v1/stream"

// EnrollRequest presents a one-time token and the host's two fresh public keys. The private keys never leave the host.
type EnrollRequest struct {
	Token     string    `json:"token"`      // secret
	LinkKey   string    `json:"link_key"`   // nkey public user key, U…
	AttestKey []byte    `json:"attest_key"` // Ed25519 public key, 32 bytes
	Proof     []byte    `json:"proof"`      // by the attestation key over EnrollProof
	LinkProof []byte    `json:"link_proof"` // by the link key over EnrollProof
	Inventory Inventory `json:"inventory"`
}

// EnrollProof is what both keys sign: muster-enroll-v1|origin|sha256(token)|public keys. The origin
// (scheme://host[:port] the agent was told to enrol at) binds the proof to one platform.
func EnrollProof(origin, token, linkKey string, attestKey ed25519.PublicKey) []byte {
	sum := sha256.Sum256([]byte(token))
	return []byte("muster-enroll-v1|" + origin + "|" + hex.EncodeToString(sum[:]) + "|" + linkKey + "|" +
		hex.EncodeToString(attestKey))
}

// EnrollReply is what the host keeps: who it is and where it connects.
type EnrollReply struct {
	Host         string   `json:"host"` // host_…
	Name         string   `json:"name"`
	NATS         []string `json:"nats"`          // tls:// or wss:// addresses, tried in order
	NATSCA       string   `json:"nats_ca"`       // PEM to verify them with; "" = the system's roots
	StreamDomain string   `json:"stream_domain"` // dial-backs go only to this host or its subdomains
	StreamCA     string   `json:"stream_ca"`     // PEM; "" = the system's roots
}

// Dial asks an agent to open a stream back to the replica that wants it.
type Dial struct {
	URL    string `json:"url"`    // wss://…/agent/v1/stream, under EnrollReply.StreamDomain
	Ticket string `json:"ticket"` // secret, one use, 30 s
	LeaseRef
	Purpose string `json:"purpose"` // see the Purpose constants
	// Tail and Follow are for PurposeLogs.
	Tail   int  `json:"tail,omitempty"`
	Follow bool `json:"follow,omitempty"`
}

const (
	// PurposeLogs streams the workload's output: LogFrame JSON lines, until the end or the reader leaves.
	PurposeLogs = "logs"
	// PurposeKeptLog streams the kept log of an ended run in the same form, to be stored.
	PurposeKeptLog = "kept_log"
	// PurposeShell is a shell connection to a running node: see ShellRequest.
	PurposeShell = "shell"
)

// StreamHello is the first message on a dialled stream, signed by the link key.
type StreamHello struct {
	Host      string `json:"host"`
	Ticket    string `json:"ticket"`
	Signature []byte `json:"signature"`       // by the link key over StreamProof
	Error     string `json:"error,omitempty"` // the agent cannot serve it: why
}

// StreamProof is what the agent signs to take up a ticket.
func StreamProof(host, ticket string) []byte {
	return []byte("muster-stream-v1|" + host + "|" + ticket)
}

// LogFrame is one line of a workload's output.
type LogFrame struct {
	TimeMS int64  `json:"t"` // the host's container runtime's clock, unix ms
	Stderr bool   `json:"e,omitempty"`
	Line   string `json:"l"` // without the newline; invalid UTF-8 replaced
}

// Validate checks the shape of an enrolment that needs no database.
func (r *EnrollRequest) Validate() error {
	switch {
	case len(r.Token) < 20 || len(r.Token) > 200:
		return errors.New("token has the wrong length")
	case len(r.AttestKey) != ed25519.PublicKeySize:
		return errors.New("attestation key has the wrong length")
	case len(r.LinkKey) != 56 || r.LinkKey[0] != 'U':
		return errors.New("link key is not a public user key")
	}
	return nil
}
