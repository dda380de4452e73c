package tokenize

import (
	"bytes"
	"strings"
)

// continueFinal ends the prompt with the last message's text, as transformers
// does for continue_final_message: what the template put after it goes.
func continueFinal(r *rendering, c *chat) error {
	last := &c.messages[len(c.messages)-1]
	text := pythonTrim(last.text)
	// Versions of transformers look for the text or for a mark behind it; they
	// agree when it cannot be found in what the template puts after it.
	at := bytes.LastIndex(r.out, text)
	if len(text) == 0 || last.media || last.hasCalls || last.role == "tool" || at < 0 {
		return errContinue
	}
	after := string(r.out[at+len(text):])
	trailing := !bytes.HasSuffix(last.text, text) // a template may keep it or not
	if strings.TrimSpace(after) != eot || trailing && after[0] != '<' {
		return errContinue
	}
	r.out = r.out[:at+len(text)]
	return nil
}
