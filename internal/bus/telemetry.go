package bus

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// watchEvery is how often a watched host is told so; a host stops sending every second a minute after the last time.
const watchEvery = 40 * time.Second

// WatchTelemetry reports a host's samples as they arrive, every second, until ctx ends, and closes the channel then.
// A receiver that is slow misses batches. Samples are as the host sent them: the caller picks the GPUs it knows.
//
// It listens beside the replica that stores the history, so that nothing is sent twice while nobody watches.
func (b *Bus) WatchTelemetry(ctx context.Context, host id.Host) <-chan agentapi.Telemetry {
	out := make(chan agentapi.Telemetry, 4)
	if b.off() {
		context.AfterFunc(ctx, func() { close(out) })
		return out
	}
	in := make(chan *nats.Msg, 16)
	sub, err := b.hosts.ChanSubscribe(agentapi.SubjectTelemetry(host.String()), in)
	go func() {
		defer close(out)
		if err != nil {
			return
		}
		defer func() { _ = sub.Unsubscribe() }()
		again := time.NewTicker(watchEvery)
		defer again.Stop()
		b.WatchHost(host)
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				b.WatchHost(host)
			case m := <-in:
				var t agentapi.Telemetry
				if json.Unmarshal(m.Data, &t) != nil {
					continue
				}
				select {
				case out <- t:
				default:
				}
			}
		}
	}()
	return out
}
