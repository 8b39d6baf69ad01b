package agentapi

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// EnrollPath is where an agent enrols, over HTTPS: POST EnrollRequest → EnrollReply, or a problem document.
const EnrollPath = "/agent/v1/enroll"

// EndpointsPath says where hosts connect, over HTTPS and without authentication: GET → Endpoints. A host requests it
// before it enrols, so that addresses that its network blocks are known before anything depends on them.
const EndpointsPath = "/agent/v1/endpoints"

// Endpoints lists what hosts must be able to reach, in addition to the address that returns it.
type Endpoints struct {
	NATS   []string `json:"nats"`    // as in EnrollReply
	NATSCA string   `json:"nats_ca"` // as in EnrollReply
	Relays []string `json:"relays"`  // host:port of every relay, UDP
}

// StreamPath is where an agent dials back to: a WebSocket that carries one stream. The first message is text, a
// StreamHello. Binary messages follow, whose concatenated contents are the stream; message boundaries have no meaning.
// A normal closure (1000) ends the stream; any other closure gives the cause as its reason.
const StreamPath = "/agent/v1/stream"

// EnrollRequest presents a one-time token and the host's two fresh public keys. The private keys never leave the host.
type EnrollRequest struct {
	Token     string    `json:"token"`      // secret
	LinkKey   string    `json:"link_key"`   // nkey public user key, U…
	AttestKey []byte    `json:"attest_key"` // Ed25519 public key, 32 bytes
	Proof     []byte    `json:"proof"`      // by the attestation key over EnrollProof
	LinkProof []byte    `json:"link_proof"` // by the link key over EnrollProof
	Inventory Inventory `json:"inventory"`
	// Ephemeral: the machine may vanish for good, or come back with other GPUs, as a cloud's virtual machine does.
	Ephemeral bool `json:"ephemeral,omitempty"`
}

// EnrollProof returns what both keys sign: muster-enroll-v1|origin|sha256(token)|public keys. The origin
// (scheme://host[:port] that the agent enrols at) binds the proof to one platform.
func EnrollProof(origin, token, linkKey string, attestKey ed25519.PublicKey) []byte {
	sum := sha256.Sum256([]byte(token))
	return []byte("muster-enroll-v1|" + origin + "|" + hex.EncodeToString(sum[:]) + "|" + linkKey + "|" +
		hex.EncodeToString(attestKey))
}

// EnrollReply is what the host stores: its id and where it connects.
type EnrollReply struct {
	Host         string   `json:"host"` // host_…
	Name         string   `json:"name"`
	NATS         []string `json:"nats"`          // tls:// or wss:// addresses; each host tries those of the first one's kind
	NATSCA       string   `json:"nats_ca"`       // PEM to verify them with; "" = the system's roots
	StreamDomain string   `json:"stream_domain"` // the agent dials back only to this host or its subdomains
	StreamCA     string   `json:"stream_ca"`     // PEM; "" = the system's roots
}

// Dial asks an agent to open a stream to the replica that wants it.
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
	// PurposeLogs streams the workload's output as JSON lines of LogFrame, until it ends or the reader leaves.
	PurposeLogs = "logs"
	// PurposeKeptLog streams the stored log of an ended run in the same format, so that the server can store it.
	PurposeKeptLog = "kept_log"
	// PurposeShell is a shell connection to a running node; see ShellRequest.
	PurposeShell = "shell"
)

// StreamHello is the first message on a dialled stream, signed by the link key.
type StreamHello struct {
	Host      string `json:"host"`
	Ticket    string `json:"ticket"`
	Signature []byte `json:"signature"`       // by the link key over StreamProof
	Error     string `json:"error,omitempty"` // why the agent cannot serve the stream
}

// StreamProof returns what the agent signs to redeem a ticket.
func StreamProof(host, ticket string) []byte {
	return []byte("muster-stream-v1|" + host + "|" + ticket)
}

// LogFrame is one line of a workload's output.
type LogFrame struct {
	TimeMS int64  `json:"t"` // clock of the host's container runtime, unix milliseconds
	Stderr bool   `json:"e,omitempty"`
	Line   string `json:"l"` // without the newline; invalid UTF-8 replaced

	// Of the first line of a log that was kept of a run: how much was printed before it and is not kept.
	CutLines int64 `json:"cl,omitempty"`
	CutBytes int64 `json:"cb,omitempty"`
}

// Validate checks the parts of an enrolment's shape that need no database.
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
