// Package bus is publish and subscribe between the server's replicas, and from them to the hosts, over NATS.
//
// Invariants:
//   - It carries hints, never facts: everything that it carries can be read from PostgreSQL, and a lost message does no
//     harm because every receiver also polls.
//   - A nil *Bus is a bus without receivers: every call is allowed and does nothing.
//   - Messages between replicas travel in a NATS account that hosts are not in; subjects towards a host are those of
//     agentapi.
package bus

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// Bus publishes and subscribes. It is safe for concurrent use.
type Bus struct {
	hosts, replicas *nats.Conn
	wake            atomic.Pointer[func(host id.Host, revision int64)] // nil: publishes the revision
}

// New returns a bus over two connections, which the caller keeps and closes: one into the NATS account of the hosts,
// and one into the replicas' own, which no host can reach.
func New(hosts, replicas *nats.Conn) *Bus {
	return &Bus{hosts: hosts, replicas: replicas}
}

func (b *Bus) off() bool { return b == nil || b.hosts == nil || b.replicas == nil }

// ErrAway means that a message for a host had no receiver: the host is not connected to any replica.
var ErrAway = errors.New("the host is not connected")

// Wake notifies a host that its desired state has changed. It does not wait. Wakes may be lost: agents also sync
// periodically.
func (b *Bus) Wake(host id.Host, revision int64) {
	if b.off() {
		return
	}
	if f := b.wake.Load(); f != nil {
		(*f)(host, revision)
		return
	}
	b.publish(agentapi.SubjectWake(host.String()), agentapi.Wake{Revision: revision})
}

// WakeWith makes Wake call f, which must not block, instead of publishing the revision alone.
func (b *Bus) WakeWith(f func(host id.Host, revision int64)) { b.wake.Store(&f) }

// WatchHost notifies a host that it has a viewer: it sends telemetry every second for the next minute.
func (b *Bus) WatchHost(host id.Host) {
	b.publish(agentapi.SubjectWake(host.String()), agentapi.Wake{Watch: true})
}

// publish publishes v as JSON. Errors (a closed connection, a full buffer while reconnecting) lose the message, which
// is allowed here.
func (b *Bus) publish(subject string, v any) {
	if b.off() {
		return
	}
	if data, err := json.Marshal(v); err == nil {
		_ = b.hosts.Publish(subject, data)
	}
}

// Dial asks a host to open a stream and then waits: it returns ErrAway as soon as it is known that the host is not
// connected, and ctx's error when ctx ends, which implies nothing about the host. On a nil bus every host is away.
func (b *Bus) Dial(ctx context.Context, host id.Host, d agentapi.Dial) error {
	if b.off() {
		return ErrAway
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	// Agents never answer a dial; the NATS server answers the request form if there is no receiver.
	_, err = b.hosts.RequestWithContext(ctx, agentapi.SubjectDial(host.String()), data)
	if errors.Is(err, nats.ErrNoResponders) {
		return ErrAway
	}
	return err
}
