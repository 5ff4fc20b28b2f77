
require_master()
return inspect()
