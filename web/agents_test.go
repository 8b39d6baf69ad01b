package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestThePlatformSaysWhichAgentHostsRun(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if res, _ := b.get("/admin/agents"); res.StatusCode != http.StatusNotFound {
		t.Errorf("shown to anybody: %d", res.StatusCode)
	}
	b.makeAdmin()
	if _, doc := b.get("/admin/agents"); !strings.Contains(doc.Text(), "No version is set") ||
		doc.Find(`nav a[href="/admin/agents"]`).Length() != 1 {
		t.Error(doc.Text())
	}
	form := url.Values{
		"name":    {"stable"},
		"version": {"latest"},
		"source":  {"https://releases.example/v1"},
		"percent": {"5"},
	}
	if res, doc := b.post("/admin/agents", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#version-e").Length() != 1 {
		t.Errorf("a version that is none: %d", res.StatusCode)
	}
	form.Set("version", "v1.4.0")
	if _, doc := b.post("/admin/agents", form); !strings.Contains(doc.Find("#channels").Text(), "v1.4.0") ||
		!strings.Contains(doc.Find("#channels").Text(), "Rolling out") {
		t.Error(doc.Find("main").Text())
	}
}

// Admins see and set the oldest versions of hosts' programs on the page of agents.
func TestAdminsSetOldestVersions(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	form := url.Values{"component": {"runc"}, "branch": {"1.4."}, "least": {"1.4.2"}, "reason": {"a bulletin"},
		"noticed_on": {"2026-11-25"}, "blocks_from": {"2027-01-01"}}
	if res, _ := b.post("/admin/version-floors", form); res.StatusCode != http.StatusNotFound {
		t.Errorf("set by anybody: %d", res.StatusCode)
	}
	b.makeAdmin()
	form.Set("least", "newest")
	if res, doc := b.post("/admin/version-floors", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#least-e").Length() != 1 {
		t.Errorf("a version that is none: %d", res.StatusCode)
	}
	form.Set("least", "1.4.2")
	_, doc := b.post("/admin/version-floors", form)
	if text := doc.Find("#floors").Text(); !strings.Contains(text, "1.4.2") ||
		!strings.Contains(text, "not rented from 2027-01-01") || !strings.Contains(text, "CVE-2025-23266") {
		t.Error(text)
	}
	_, doc = b.post("/admin/version-floors/remove", url.Values{"component": {"runc"}, "branch": {"1.4."}})
	if text := doc.Find("#floors").Text(); strings.Contains(text, "1.4.2") {
		t.Error(text)
	}
}

func TestAHostFollowsAChannel(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(1)
	_, doc := b.get("/hosts")
	host, _ := doc.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	if _, doc := b.get(host); doc.Find("#agent_channel").AttrOr("value", "") != "stable" {
		t.Error(doc.Find("#agent").Text())
	}
	if res, doc := b.post(host+"/agent",
		url.Values{"agent_channel": {"nosuch"}}); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#agent_channel-e").Length() != 1 {
		t.Errorf("a channel that is none: %d", res.StatusCode)
	}
	if _, doc := b.post(host+"/agent", url.Values{"agent_channel": {"off"}}); doc.Find("#agent_channel").AttrOr("value",
		"") != "off" {
		t.Error(doc.Find("#agent").Text())
	}
}
