
return inspect()
