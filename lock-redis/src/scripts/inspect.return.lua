
require_master(NOTES)
return inspect()
