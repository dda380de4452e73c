package tokenize

// DeveloperRole is what a worker makes of messages of the role developer.
// Versions of vLLM differ, so it must be learnt from the workers; Parity with
// their /tokenize shows it.
type DeveloperRole int32

// What workers do.
const (
	DeveloperUnknown  DeveloperRole = iota // such chats are uncertain
	DeveloperAsIs                          // the template gets the role as it came (vLLM 0.16)
	DeveloperAsSystem                      // the template gets a system message (vLLM 0.32)
)

func (d DeveloperRole) String() string {
	switch d {
	case DeveloperAsIs:
		return "as it is"
	case DeveloperAsSystem:
		return "as system"
	case DeveloperUnknown:
	}
	return "unknown"
}

// SetDeveloperRole says what the model's workers do. It may be called at any
// time.
func (m *Model) SetDeveloperRole(d DeveloperRole) { m.developer.Store(int32(d)) }

// DeveloperRole is what was last said.
func (m *Model) DeveloperRole() DeveloperRole { return DeveloperRole(m.developer.Load()) }

// DeveloperTokens is [Model.Tokens] of a chat for workers that do d.
func (m *Model) DeveloperTokens(d DeveloperRole, body []byte) (ids []Token, err error) {
	ids, _, err = m.tokens(Chat, body, d)
	return ids, err
}
