package hostlink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// handleTimeout limits the time for one message. A message that is being handled is not given up when its sender stops
// waiting: most of the work is done by then, and the next report would repeat it.
const handleTimeout = 30 * time.Second

// onHost returns a handler of hosts' messages of one kind: it queues those that our agent would send, for handle. The
// host is that of the message's subject, where NATS allows only that host to publish.
func (l *Link) onHost(q *queue, handle func(context.Context, id.Host, *nats.Msg)) nats.MsgHandler {
	return func(m *nats.Msg) {
		h, kind, ok := senderOf(m)
		if !ok {
			return
		}
		if wait, answer := l.limits.take(h, kind); wait > 0 {
			// The message is not decoded, so each message of a flood costs only this check.
			if answer {
				l.refuse(m, wait)
			}
			l.log.Debug("a host sends too often", "host", h, "what", kind, "wait", wait)
			return
		}
		q.add(h, m, func(ctx context.Context, m *nats.Msg) {
			if m.Reply == "" || ownInbox(h, m.Reply) {
				handle(ctx, h, m)
				return
			}
			l.log.Warn("a host wants its answer published elsewhere: refused", "host", h, "reply", text.Clip(m.Reply, 200))
			l.alert(ctx, h, host.Alert{
				Action: "host.foreign_reply",
				Title:  "A host asked for answers in another host's name",
				Body:   "Its agent is not ours or was tampered with. Retire the host unless you know why.",
			})
		})
	}
}

// senderOf returns the host that published a message, and the kind of the message.
func senderOf(m *nats.Msg) (h id.Host, kind string, ok bool) {
	parts := strings.Split(m.Subject, ".")
	if len(parts) != 3 {
		return h, "", false
	}
	h, err := id.Parse[id.Host](parts[1])
	return h, parts[2], err == nil
}

// refuse makes a host send a message again after wait.
func (l *Link) refuse(m *nats.Msg, wait time.Duration) {
	if h, _, ok := senderOf(m); ok && ownInbox(h, m.Reply) {
		l.answer(h, m, (&agentapi.TooMany{Wait: wait}).Ack())
	}
}

// ownInbox reports whether a reply subject is a single literal subject under the host's inbox.
func ownInbox(h id.Host, reply string) bool {
	rest, ok := strings.CutPrefix(reply, agentapi.InboxPrefix(h.String())+".")
	return ok && len(rest) < 200 && !strings.ContainsAny(rest, "*> \t\r\n") && !strings.Contains("."+rest+".", "..")
}

// answer responds to m with v. The caller has checked the reply subject: it is in the host's own inbox.
func (l *Link) answer(h id.Host, m *nats.Msg, v any) {
	if m.Reply == "" {
		return
	}
	data, err := agentapi.Encode(v)
	if limit := l.hosts.MaxPayload(); err == nil && int64(len(data)) > limit {
		l.log.Error("an answer to a host is too big to send: it is sent without its largest parts", "host", h, "bytes",
			len(data), "limit", limit)
		data, err = agentapi.Encode(withoutBulk(v, len(data), limit))
	}
	if err == nil {
		err = l.hosts.Publish(m.Reply, data)
	}
	if err != nil {
		l.log.Warn("answer to a host failed", "host", h, "err", err)
	}
}

// withoutBulk returns an answer without the parts that can be large. A host always gets its acknowledgements and until
// when its leases may run; what it runs stays as it is.
func withoutBulk(v any, size int, limit int64) any {
	why := fmt.Sprintf("the answer has %d bytes, and the link carries %d", size, limit)
	switch a := v.(type) {
	case agentapi.SyncReply:
		a.Desired, a.Popular, a.LogsStored = nil, nil, nil
		a.Revision = 0 // otherwise the host would ask for the state at once, again and again
		return a
	case agentapi.VolumeReply:
		return agentapi.VolumeReply{Error: &agentapi.VolumeError{Code: agentapi.VolumeMalformed, Message: why}}
	}
	return agentapi.Ack{Error: why}
}

// read decodes a host's message; see decode.
func read(m *nats.Msg, v any) error { return decode(m.Data, v) }

// decode decodes JSON of a host. NUL characters, which PostgreSQL can store neither as text nor in JSON, are removed
// from its texts.
func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if bytes.Contains(data, []byte(`\u0000`)) { // an escaped NUL, or an escaped backslash before "u0000"
		text.WithoutNUL(v)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}
