package clusters

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/nodelog"
)

// TestAPageIsToldHowFarItIs: every event has the position that its lines reach, and a page that had one goes on there.
func TestAPageIsToldHowFarItIs(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	p := &logPage{e: openEvents(answer), at: nodelog.ParsePosition("0.1.1000.2")}
	lines, over := make(chan nodelog.Line), make(chan error)
	go func() {
		for _, l := range []nodelog.Line{
			{Rank: 1, Epoch: 1, LogFrame: agentapi.LogFrame{TimeMS: 900, Line: "of <another>"}},
			{Rank: 0, Epoch: 1, LogFrame: agentapi.LogFrame{TimeMS: 1000, Line: "the third of that time"}},
			{Rank: 0, Epoch: 2, LogFrame: agentapi.LogFrame{TimeMS: 5, Line: "a new start"}},
		} {
			lines <- l
		}
		over <- nil
	}()
	if err := p.stream(t.Context(), lines, over); err != nil {
		t.Fatal(err)
	}
	body := answer.Body.String()
	ids := regexp.MustCompile(`(?m)^id: (.*)$`).FindAllStringSubmatch(body, -1)
	if len(ids) == 0 || ids[len(ids)-1][1] != "0.2.5.1,1.1.900.1" {
		t.Errorf("ids %v in\n%s", ids, body)
	}
	at := -1
	for _, text := range []string{"of &lt;another&gt;", "the third of that time", "a new start", "event: ended"} {
		next := strings.Index(body, text)
		if next <= at {
			t.Errorf("%q is missing or too early in\n%s", text, body)
		}
		at = next
	}
}

// A page that searches gets only the lines that it searches for, marked, and its position passes the others.
func TestAPageSearchesALogAsItIsPrinted(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	search, err := nodelog.NewSearch("grep", "loss<")
	if err != nil {
		t.Fatal(err)
	}
	p := &logPage{e: openEvents(answer), at: nodelog.Position{}, search: search}
	lines, over := make(chan nodelog.Line), make(chan error)
	go func() {
		for i, text := range []string{"step 1", "a Loss<3", "step 2"} {
			lines <- nodelog.Line{Epoch: 1, LogFrame: agentapi.LogFrame{TimeMS: int64(i), Line: text}}
		}
		over <- nil
	}()
	if err := p.stream(t.Context(), lines, over); err != nil {
		t.Fatal(err)
	}
	body := answer.Body.String()
	if !strings.Contains(body, `<span class="msg">a <mark>Loss&lt;</mark>3</span>`) || strings.Contains(body, "step") {
		t.Errorf("%s", body)
	}
	if got := p.at.String(); got != "0.1.2.1" {
		t.Errorf("position %s", got)
	}
}
