package page

import "testing"

func TestBrowserName(t *testing.T) {
	for header, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0": "Firefox on Linux",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 " +
			"Safari/605.1.15": "Safari on macOS",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 " +
			"Safari/537.36": "Chrome on Windows",
		"our own program": "our own program",
		"":                "Unknown browser",
	} {
		if got := BrowserName(header); got != want {
			t.Errorf("BrowserName(%q) = %q, want %q", header, got, want)
		}
	}
}
