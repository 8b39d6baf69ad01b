package sandbox

import (
	"net/http"
	"net/url"
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

func (s *Server) meterRoutes() {
	s.onPost("/v1/billing/meters", s.createMeter)
	s.onGet("/v1/billing/meters", func(r *http.Request) answer {
		return pageOf(&s.s.Meters, r, func(q url.Values, m *meter) bool {
			return q.Get("status") == "" ||
				m.Status == q.Get("status")
		})
	})
	s.onGet("/v1/billing/meters/{id}", func(r *http.Request) answer {
		if m := s.s.Meters.get(r.PathValue("id")); m != nil {
			return ok(m)
		}
		return missing("billing meter", r.PathValue("id"))
	})
}

func (s *Server) createMeter(_ *http.Request, form url.Values) answer {
	event := form.Get("event_name")
	formula := form.Get("default_aggregation[formula]")
	switch {
	case event == "" || form.Get("display_name") == "":
		return invalid("event_name", "Missing required param: event_name or display_name.")
	case formula != "sum" && formula != "count":
		return invalid("default_aggregation", "Invalid formula: must be one of count or sum")
	}
	for _, m := range s.s.Meters.Objects {
		if m.Event == event && m.Status == "active" {
			return invalid("event_name", "There is already an active meter with event_name %q.", event)
		}
	}
	m := &meter{
		ID:          newID("mtr"),
		Object:      "billing.meter",
		Created:     s.now(),
		Updated:     s.now(),
		Name:        form.Get("display_name"),
		Event:       event,
		Status:      "active",
		Mapping:     meterMapping{or(form.Get("customer_mapping[event_payload_key]"), "stripe_customer_id"), "by_id"},
		Aggregation: meterFormula{formula},
		Value:       meterValue{or(form.Get("value_settings[event_payload_key]"), "value")},
	}
	return ok(s.s.Meters.put(m.ID, m))
}

// Deactivate switches a meter off, as somebody may in Stripe's dashboard.
func (s *Server) Deactivate(meterID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.s.Meters.get(meterID); m != nil {
		at := s.now()
		m.Status, m.Transitions.Deactivated = "inactive", &at
		s.save()
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
