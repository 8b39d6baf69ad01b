package client

import "testing"

func TestLogCut_ReadsWhatServersSend(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]LogCut{
		"true": {}, "true; lines=5; bytes=70": {5, 70}, "true;lines=5;x=y": {5, 0},
	} {
		if got := logCut(header); got == nil || *got != want {
			t.Errorf("%q: %+v", header, got)
		}
	}
	if got := logCut(""); got != nil {
		t.Errorf("no header: %+v", got)
	}
}
