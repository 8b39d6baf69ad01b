package tracing_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/tracing"
)

// Spans arrive at the collector that the environment names. They have names, numbers and whether they failed, and not
// the text of an error. A request begins a separate trace.
func TestSpansArrive(t *testing.T) {
	var spans []*otlp.Span
	var sent []byte
	service := ""
	c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var q collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(b, &q)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		sent = append(sent, b...)
		for _, rs := range q.ResourceSpans {
			for _, a := range rs.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.GetStringValue()
				}
			}
			for _, ss := range rs.ScopeSpans {
				spans = append(spans, ss.Spans...)
			}
		}
	}))
	defer c.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	stop, err := tracing.Start(t.Context(), "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	outer, other := tracing.Begin(t.Context(), "something else")
	ctx, request := tracing.Request(outer, "api")
	if !request.Recorded() || len(request.ID()) != 32 || request.ID() == other.ID() {
		t.Errorf("request %q within %q", request.ID(), other.ID())
	}
	_, tx := tracing.Begin(ctx, "transaction")
	tx.Set("statements", 3)
	tx.End(errors.New("duplicate key value: alice@example.com"))
	request.Name("POST /clusters")
	request.End(nil)
	other.End(nil)
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	if len(spans) != 3 || service != "muster" {
		t.Fatalf("%d spans of %q", len(spans), service)
	}
	child, parent := spans[0], spans[1]
	if child.Name != "transaction" || string(child.ParentSpanId) != string(parent.SpanId) ||
		child.Status.Code != otlp.Status_STATUS_CODE_ERROR || child.Attributes[0].Value.GetIntValue() != 3 {
		t.Errorf("the transaction: %v", child)
	}
	if parent.Name != "POST /clusters" || len(parent.ParentSpanId) > 0 || parent.Kind != otlp.Span_SPAN_KIND_SERVER ||
		parent.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("the request: %v", parent)
	}
	if strings.Contains(string(sent), "alice") {
		t.Error("the text of an error was sent")
	}
}

// Without a collector nothing is recorded.
func TestNoCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	stop, err := tracing.Start(t.Context(), "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if _, s := tracing.Begin(t.Context(), "transaction"); s.Recorded() || s.ID() != "" {
		t.Errorf("a span is recorded: %q", s.ID())
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}
