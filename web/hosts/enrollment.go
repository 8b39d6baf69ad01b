package hosts

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// enrollmentProgress renders the progress of a new host's enrolment; the page polls it.
func (s *Pages) enrollmentProgress(v *page.Visit) error {
	e, err := id.Parse[id.Enrollment](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "enrolment not found")
	}
	p, err := s.Hosts.Enrollment(v.R.Context(), v.Who, e)
	if err != nil {
		return err
	}
	priced := false
	if p.Host != nil {
		offers, err := s.Market.OffersOf(v.R.Context(), p.Host.ID)
		if err != nil {
			return err
		}
		for _, o := range offers[p.Host.ID] {
			priced = priced || o.Price != nil
		}
	}
	return s.Render(v, EnrollProgress(enrollChecks(p, priced, s), e.String()))
}

// enrollChecks returns the steps from a token to a host that is offered, and which of them are done.
func enrollChecks(p host.Enrolling, priced bool, s *Pages) EnrollChecks {
	wait := func(title, text string) CheckLine {
		return CheckLine{Title: title, Text: text, Icon: "pending", Tone: "idle"}
	}
	done := func(title, text string) CheckLine {
		return CheckLine{Title: title, Text: text, Icon: "check", Tone: "ok"}
	}
	c := EnrollChecks{Expired: p.Expired}
	switch {
	case p.Expired:
		c.Lines = append(c.Lines, CheckLine{
			Title: "The token has expired",
			Text:  "It was not used in time. Create another one.",
			Icon:  "error",
			Tone:  "bad",
		})
		return c
	case p.Host == nil && p.Step == "":
		c.Lines = append(c.Lines, CheckLine{
			Title: "Waiting for the host",
			Text:  "Run the command on it. This page shows each step as it happens.",
			Icon:  "preflight",
			Tone:  "live",
		})
	case p.Host == nil:
		c.Lines = append(c.Lines, scriptSteps(p)...)
	default:
		c.Host, c.HostURL = p.Host.Name, "/hosts/"+p.Host.ID.String()
		c.Lines = append(c.Lines, done("Token used, keys registered", p.Host.Name))
	}
	switch {
	case p.Host != nil && p.Host.Status.LastSyncAt != nil:
		c.Lines = append(c.Lines, done("The agent reports", lastReport(p.Host.Host, s.Now())))
	case p.Host != nil && p.Host.Status.Connected:
		c.Lines = append(c.Lines, done("The agent reports", "connected"))
	default:
		c.Lines = append(c.Lines, wait("The agent reports", "The script starts it after the enrolment."))
	}
	if p.Host == nil || p.Host.InventoryAt == nil {
		c.Lines = append(c.Lines, wait("GPUs, Docker and disk are checked", ""))
	} else {
		c.Lines = append(c.Lines, machineChecks(*p.Host)...)
	}
	switch {
	case !priced:
		c.Lines = append(c.Lines, wait("Price", "The host cannot be rented until you set one."))
	case p.Host.Unsellable(s.Now()) != "":
		c.Lines = append(c.Lines, wait("On the market", view.Sentence(p.Host.Unsellable(s.Now()))))
	default:
		c.Lines = append(c.Lines, done("On the market", "Renters can rent the host."))
		c.Done = true
	}
	return c
}

// driverText names the driver of a host's GPUs, and what it runs.
func driverText(d host.Detail) string {
	if d.Inventory.AMDGPU != "" {
		return "driver " + d.Inventory.AMDGPU
	}
	return fmt.Sprintf("driver %s, CUDA %s", d.Driver, d.CUDAMax)
}

// machineChecks returns what the agent found on the machine: what is well, then its problems.
func machineChecks(d host.Detail) []CheckLine {
	lines := []CheckLine{
		{gpuSummary(d.GPUs), driverText(d), "check", "ok"},
		{"Host", fmt.Sprintf("%s, %s of RAM, %d GB of free disk", view.Plural(d.CPUCores, "core", "cores"),
			view.GiB(d.RAMMB), d.DiskGB), "check", "ok"},
	}
	if v := d.Inventory.DockerVersion; v != "" {
		lines = append(lines, CheckLine{"Docker " + v, either(d.Inventory.LiveRestore, "live-restore is on", ""), "check",
			"ok"})
	}
	for _, problem := range hostProblems(d) {
		lines = append(lines, CheckLine{problem.Cause, problem.Fix, problem.State.Icon, problem.State.Tone})
	}
	return lines
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// stepTitles are the steps of the install script: while they run, and when they are done.
var stepTitles = map[host.Step][2]string{
	host.StepFetch:   {"Downloading the agent", "Agent downloaded, its hash is right"},
	host.StepCheck:   {"Checking the machine: driver, Docker, GPUs, disk, ports", "The machine is fit"},
	host.StepInstall: {"Installing the agent", "Agent installed"},
	host.StepEnrol:   {"Making keys and enrolling the host", "Token used, keys registered"},
}

// scriptSteps returns the steps of the install script: those that are done, and the one that runs or failed.
func scriptSteps(p host.Enrolling) (lines []CheckLine) {
	for _, s := range host.Steps() {
		title := stepTitles[s]
		switch {
		case s != p.Step:
			lines = append(lines, CheckLine{title[1], "", "check", "ok"})
			continue
		case p.StepFailed:
			text := view.Sentence(p.StepDetail) + " Fix this and run the command again; the token is still valid."
			return append(lines, CheckLine{title[0] + " failed", text, "error", "bad"})
		}
		return append(lines, CheckLine{title[0], "", "preflight", "live"})
	}
	return lines
}

// enrollStep takes the progress of an install script, which has no session: the one-time token is its authorisation.
func (s *Pages) enrollStep(v *page.Visit) error {
	token, _ := strings.CutPrefix(v.R.Header.Get("Authorization"), "Bearer ")
	err := s.Hosts.ReportStep(v.R.Context(), token, host.Step(v.R.PostFormValue("step")), v.R.PostFormValue("detail"),
		v.R.PostFormValue("failed") != "")
	if err == nil {
		v.W.WriteHeader(http.StatusNoContent)
	}
	return err
}
