package sandbox

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// meter adds up what a kind of event reports of each customer.
type meter struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Created     int64           `json:"created"`
	Mapping     meterMapping    `json:"customer_mapping"`
	Aggregation meterFormula    `json:"default_aggregation"`
	Name        string          `json:"display_name"`
	Event       string          `json:"event_name"`
	Window      *string         `json:"event_time_window"`
	Livemode    bool            `json:"livemode"`
	Status      string          `json:"status"` // active, inactive
	Transitions meterTransition `json:"status_transitions"`
	Updated     int64           `json:"updated"`
	Value       meterValue      `json:"value_settings"`
}

type meterMapping struct {
	Key  string `json:"event_payload_key"`
	Type string `json:"type"`
}

type meterFormula struct {
	Formula string `json:"formula"`
}

type meterTransition struct {
	Deactivated *int64 `json:"deactivated_at"`
}

type meterValue struct {
	Key string `json:"event_payload_key"`
}

// Meters add up what customers use.
type Meters struct {
	store  *store
	events *events
}

func (ms *Meters) routes(f *front) {
	f.onPost("/v1/billing/meters", ms.create)
	f.onGet("/v1/billing/meters", func(r *http.Request) answer {
		return pageOf(&ms.store.Meters, r, func(q url.Values, m *meter) bool {
			return q.Get("status") == "" ||
				m.Status == q.Get("status")
		})
	})
	f.onGet("/v1/billing/meters/{id}", func(r *http.Request) answer {
		if m := ms.store.Meters.get(r.PathValue("id")); m != nil {
			return ok(m)
		}
		return missing("billing meter", r.PathValue("id"))
	})
}

func (ms *Meters) create(_ *http.Request, form url.Values) answer {
	event := form.Get("event_name")
	formula := form.Get("default_aggregation[formula]")
	switch {
	case event == "" || form.Get("display_name") == "":
		return invalid("event_name", "Missing required param: event_name or display_name.")
	case formula != "sum" && formula != "count":
		return invalid("default_aggregation", "Invalid formula: must be one of count or sum")
	}
	for _, m := range ms.store.Meters.Objects {
		if m.Event == event && m.Status == "active" {
			return invalid("event_name", "There is already an active meter with event_name %q.", event)
		}
	}
	m := &meter{
		ID:          newID("mtr"),
		Object:      "billing.meter",
		Created:     ms.store.now(),
		Updated:     ms.store.now(),
		Name:        form.Get("display_name"),
		Event:       event,
		Status:      "active",
		Mapping:     meterMapping{or(form.Get("customer_mapping[event_payload_key]"), "stripe_customer_id"), "by_id"},
		Aggregation: meterFormula{formula},
		Value:       meterValue{or(form.Get("value_settings[event_payload_key]"), "value")},
	}
	return ok(ms.store.Meters.put(m.ID, m))
}

// Deactivate switches a meter off, as a person can in Stripe's dashboard.
func (ms *Meters) Deactivate(meterID string) {
	ms.store.mu.Lock()
	defer ms.store.mu.Unlock()
	if m := ms.store.Meters.get(meterID); m != nil {
		at := ms.store.now()
		m.Status, m.Transitions.Deactivated = "inactive", &at
		ms.store.save()
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// meterEvent is a report of what a customer used.
type meterEvent struct {
	Object     string            `json:"object"`
	Created    int64             `json:"created"`
	Event      string            `json:"event_name"`
	Identifier string            `json:"identifier"`
	Livemode   bool              `json:"livemode"`
	Payload    map[string]string `json:"payload"`
	Timestamp  int64             `json:"timestamp"`
	Cancelled  bool              `json:"x_cancelled,omitempty"`
}

type meterAdjustment struct {
	Object   string         `json:"object"`
	Cancel   adjustedCancel `json:"cancel"`
	Event    string         `json:"event_name"`
	Livemode bool           `json:"livemode"`
	Status   string         `json:"status"`
	Type     string         `json:"type"`
}

type adjustedCancel struct {
	Identifier string `json:"identifier"`
}

type meterSummary struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Sum      int64  `json:"aggregated_value"`
	Start    int64  `json:"start_time"`
	End      int64  `json:"end_time"`
	Livemode bool   `json:"livemode"`
	Meter    string `json:"meter"`
}

// Bounds of a meter event.
const (
	uniqueFor    = 24 * time.Hour // an identifier counts once, and may be cancelled
	oldestUsage  = 35 * 24 * time.Hour
	aheadOfUsage = 5 * time.Minute
)

func (ms *Meters) usageRoutes(f *front) {
	f.onPost("/v1/billing/meter_events", ms.createEvent)
	f.onPost("/v1/billing/meter_event_adjustments", ms.adjust)
	f.onGet("/v1/billing/meters/{id}/event_summaries", ms.summary)
}

// of is the active meter of a kind of event.
func (ms *Meters) of(event string) *meter {
	for _, m := range ms.store.Meters.Objects {
		if m.Event == event && m.Status == "active" {
			return m
		}
	}
	return nil
}

func (ms *Meters) createEvent(_ *http.Request, form url.Values) answer {
	e := &meterEvent{
		Object:     "billing.meter_event",
		Created:    ms.store.now(),
		Event:      form.Get("event_name"),
		Identifier: or(form.Get("identifier"), newID("mev")),
		Payload:    nested(form, "payload"),
		Timestamp:  ms.store.now(),
	}
	m := ms.of(e.Event)
	if m == nil {
		return refused("No active meter found for event name %s.", e.Event)
	}
	if at := form.Get("timestamp"); at != "" {
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return invalid("timestamp", "Invalid integer: %s", at)
		}
		e.Timestamp = n
	}
	now := ms.store.clock()
	value, err := strconv.ParseInt(e.Payload[m.Value.Key], 10, 64)
	customer := e.Payload[m.Mapping.Key]
	switch at := time.Unix(e.Timestamp, 0); {
	case len(e.Identifier) > 100:
		return invalid("identifier", "Invalid string: must be at most 100 characters")
	case err != nil || value < 0:
		return refused("The value of the payload's %s must be a whole number.", m.Value.Key)
	case now.Sub(at) > oldestUsage:
		return refused("The timestamp must be within the past 35 calendar days.")
	case at.Sub(now) > aheadOfUsage:
		return refused("The timestamp must be at most 5 minutes in the future.")
	}
	if ms.store.Customers.get(customer) == nil {
		// Customers are validated later: the answer is 200, nothing is counted, and an error report follows.
		ms.events.emitThin("v1.billing.meter.error_report_triggered", m.ID, "billing.meter", "/v1/billing/meters/"+m.ID)
		return ok(e)
	}
	if was := ms.store.Usage.get(e.Identifier); was != nil {
		if now.Sub(time.Unix(was.Created, 0)) < uniqueFor {
			return refused("An event already exists with identifier %s.", e.Identifier)
		}
		ms.store.Usage.put(newID("mev"), was) // forgotten by its name, and still counted
	}
	return ok(ms.store.Usage.put(e.Identifier, e))
}

// refused is a refusal for which Stripe has no code.
func refused(format string, args ...any) answer {
	return apiError{Status: 400, Type: "invalid_request_error", Message: fmt.Sprintf(format, args...)}.answer()
}

func (ms *Meters) adjust(_ *http.Request, form url.Values) answer {
	name := form.Get("cancel[identifier]")
	e := ms.store.Usage.get(name)
	switch {
	case form.Get("type") != "cancel":
		return invalid("type", "Invalid type: must be cancel")
	case e == nil || e.Event != form.Get("event_name") || ms.store.clock().Sub(time.Unix(e.Created, 0)) >= uniqueFor:
		return refused("No event of the last 24 hours has the identifier %s.", name)
	}
	e.Cancelled = true
	return ok(meterAdjustment{
		Object: "billing.meter_event_adjustment",
		Cancel: adjustedCancel{name},
		Event:  e.Event,
		Status: "pending",
		Type:   "cancel",
	})
}

func (ms *Meters) summary(r *http.Request) answer {
	m, q := ms.store.Meters.get(r.PathValue("id")), r.URL.Query()
	start, err1 := strconv.ParseInt(q.Get("start_time"), 10, 64)
	end, err2 := strconv.ParseInt(q.Get("end_time"), 10, 64)
	switch {
	case m == nil:
		return missing("billing meter", r.PathValue("id"))
	case err1 != nil || err2 != nil || start >= end:
		return invalid("start_time", "start_time and end_time are wanted, one before the other")
	case start%60 != 0 || end%60 != 0:
		return invalid("start_time", "start_time and end_time must be aligned with minute boundaries")
	case ms.store.Customers.get(q.Get("customer")) == nil:
		return missing("customer", q.Get("customer"))
	}
	l := listOf(r.URL.Path, meterSummary{
		ID:     newID("mtrusg"),
		Object: "billing.meter_event_summary",
		Sum:    ms.used(m, q.Get("customer"), start, end),
		Start:  start,
		End:    end,
		Meter:  m.ID,
	})
	return ok(l)
}

// used is what a meter counts of a customer from a second until before another.
func (ms *Meters) used(m *meter, customer string, start, end int64) (sum int64) {
	for _, e := range ms.store.Usage.Objects {
		if e.Event != m.Event || e.Cancelled || e.Payload[m.Mapping.Key] != customer || e.Timestamp < start ||
			e.Timestamp >= end {
			continue
		}
		if m.Aggregation.Formula == "count" {
			sum++
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(e.Payload[m.Value.Key]), 10, 64)
		if err != nil {
			panic(err) // it was read before it was kept
		}
		sum += n
	}
	return sum
}

// Metered is what was counted of a customer in all, in the meter's units, and how many events reported it.
func (ms *Meters) Metered(customer string) (events int, sum int64) {
	ms.store.mu.Lock()
	defer ms.store.mu.Unlock()
	for _, m := range ms.store.Meters.Objects {
		sum += ms.used(m, customer, 0, 1<<62)
		for _, e := range ms.store.Usage.Objects {
			if e.Event == m.Event && e.Payload[m.Mapping.Key] == customer && !e.Cancelled {
				events++
			}
		}
	}
	return events, sum
}
