package sandbox

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// endpoint is a webhook endpoint. The fake keeps it and sends nothing there: see Webhooks.Push.
type endpoint struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	APIVersion  *string           `json:"api_version"`
	Application *string           `json:"application"`
	Created     int64             `json:"created"`
	Description *string           `json:"description"`
	Events      []string          `json:"enabled_events"`
	Livemode    bool              `json:"livemode"`
	Metadata    map[string]string `json:"metadata"`
	Secret      string            `json:"secret,omitempty"` // in the answer that made it only
	Status      string            `json:"status"`           // enabled, disabled
	URL         string            `json:"url"`
}

const maxEndpoints = 16

// Endpoints are the webhook endpoints.
type Endpoints struct{ store *store }

func (es *Endpoints) routes(f *front) {
	f.onPost("/v1/webhook_endpoints", es.create)
	f.onGet("/v1/webhook_endpoints", func(r *http.Request) answer {
		return pageOf(&es.store.Endpoints, r, func(url.Values, *endpoint) bool { return true })
	})
	f.onPost("/v1/webhook_endpoints/{id}", func(r *http.Request, form url.Values) answer {
		e := es.store.Endpoints.get(r.PathValue("id"))
		if e == nil {
			return missing("webhook endpoint", r.PathValue("id"))
		}
		if ev := listed(form, "enabled_events"); ev != nil {
			e.Events = ev
		}
		switch form.Get("disabled") {
		case "true":
			e.Status = "disabled"
		case "false":
			e.Status = "enabled"
		}
		return ok(e)
	})
}

func (es *Endpoints) create(_ *http.Request, form url.Values) answer {
	e := &endpoint{
		ID:          newID("we"),
		Object:      "webhook_endpoint",
		APIVersion:  orNull(form.Get("api_version")),
		Created:     es.store.now(),
		Description: orNull(form.Get("description")),
		Events:      listed(form, "enabled_events"),
		Metadata:    nested(form, "metadata"),
		Status:      "enabled",
		URL:         form.Get("url"),
	}
	switch u, err := url.Parse(e.URL); {
	case err != nil || u.Host == "" || !strings.HasPrefix(u.Scheme, "http"):
		return invalid("url", "Invalid URL: An explicit scheme (such as https) must be provided.")
	case len(e.Events) == 0:
		return invalid("enabled_events", "Missing required param: enabled_events.")
	case len(es.store.Endpoints.Order) >= maxEndpoints:
		return invalid("", "You have reached the maximum of %d test webhook endpoints.", maxEndpoints)
	}
	es.store.Endpoints.put(e.ID, e)
	told := *e
	told.Secret = newID("whsec")
	return ok(told)
}

// listed reads name[0]=…, name[1]=… of a form; nil: there are none.
func listed(form url.Values, name string) (out []string) {
	for k, v := range form {
		if strings.HasPrefix(k, name+"[") {
			out = append(out, v...)
		}
	}
	slices.Sort(out)
	return out
}

// Edit changes an endpoint as a person can in Stripe's dashboard; version "" leaves it to the account's
// default.
func (es *Endpoints) Edit(endpointID, version string, events ...string) {
	es.store.mu.Lock()
	defer es.store.mu.Unlock()
	if e := es.store.Endpoints.get(endpointID); e != nil {
		e.APIVersion, e.Events, e.Status = orNull(version), events, "disabled"
		es.store.save()
	}
}
