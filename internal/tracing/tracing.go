// Package tracing records what the server does as traces: the requests of people, the reports of hosts, background
// jobs, and the transactions of all of them with their statements. It sends them to an OpenTelemetry collector
// (https://opentelemetry.io/docs/specs/otel/) if the environment names one, and records nothing otherwise.
//
// A span has names, results and sizes. It never has an argument of a statement, a body, a query, an address, or the
// text of an error: these may contain what belongs to a customer. A trace begins here: what a client sends of its own
// trace is not read, as it could make the server record any number of them.
package tracing

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

// endpoints are the variables of OpenTelemetry that name a collector, each an address such as http://collector:4318.
// Others of its variables work, too: OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES.
var endpoints = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

// Start begins to send traces of a server of this version if the environment names a collector; else it does nothing.
// stop sends what is left. A collector that is away costs memory for at most 2,048 spans; later ones are lost.
func Start(ctx context.Context, version string) (stop func(context.Context) error, err error) {
	named := false
	for _, name := range endpoints {
		named = named || os.Getenv(name) != ""
	}
	if !named {
		return func(context.Context) error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("muster"),
		semconv.ServiceVersion(version)), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}

// Span is a part of a trace: something that was begun, and took a time.
type Span struct{ span trace.Span }

// Begin begins a span below that of ctx, or a trace if ctx has none.
func Begin(ctx context.Context, name string) (context.Context, Span) {
	ctx, s := otel.Tracer("muster").Start(ctx, name)
	return ctx, Span{s}
}

// Request begins the trace of a request to this server.
func Request(ctx context.Context, name string) (context.Context, Span) {
	ctx, s := otel.Tracer("muster").Start(ctx, name, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer))
	return ctx, Span{s}
}

// Of returns the span of ctx.
func Of(ctx context.Context) Span { return Span{trace.SpanFromContext(ctx)} }

// Recorded reports whether anything of the span is kept. If not, the caller need not work out what it would set.
func (s Span) Recorded() bool { return s.span != nil && s.span.IsRecording() }

// Name renames the span, once it is known what it is.
func (s Span) Name(name string) { s.span.SetName(name) }

// Set sets an attribute, such as the status of an answer.
func (s Span) Set(name string, value int) { s.span.SetAttributes(attribute.Int(name, value)) }

// SetText sets an attribute that is one of few words of our own.
func (s Span) SetText(name, value string) { s.span.SetAttributes(attribute.String(name, value)) }

// ID returns the id of the trace in hexadecimal digits, or "" if nothing of it is kept. A line of the log with it leads
// to the trace.
func (s Span) ID() string {
	if !s.Recorded() {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// End ends the span. It failed if err is not nil; the text of err is not recorded.
func (s Span) End(err error) {
	if err != nil {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}
