mod compare;
mod figures;
mod fixture;
mod forms;
